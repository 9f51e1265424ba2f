package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// nodePackages are the Debian packages that a cluster needs.
var nodePackages = []string{"containerd", "runc", "containernetworking-plugins", "iptables", "iproute2"}

// programsOf says by which programs we know that a package is there, however it came.
var programsOf = map[string][]string{
	"containerd":                  {"containerd", "containerd-shim-runc-v2", "ctr"},
	"runc":                        {"runc"},
	"containernetworking-plugins": {"cni/bridge", "cni/host-local", "cni/loopback"},
	"iptables":                    {"iptables", "iptables-save", "iptables-restore"},
	"iproute2":                    {"ip"},
}

// systemFolders are searched besides PATH: a shell that became root with plain `su` lacks some of them.
var systemFolders = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// pluginFolders are where distributions put the CNI plugins.
var pluginFolders = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

// find returns the path of a program, or "" if it is not installed.
func find(program string) string {
	if plugin, isPlugin := strings.CutPrefix(program, "cni/"); isPlugin {
		for _, folder := range pluginFolders {
			if path := filepath.Join(folder, plugin); executable(path) {
				return path
			}
		}
		return ""
	}
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	for _, folder := range systemFolders {
		if path := filepath.Join(folder, program); executable(path) {
			return path
		}
	}
	return ""
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// missing lists those packages of which a program is not there.
func missing(packages []string) (absent []string) {
	for _, name := range packages {
		programs := programsOf[name]
		if programs == nil {
			programs = []string{name}
		}
		for _, program := range programs {
			if find(program) == "" {
				absent = append(absent, name)
				break
			}
		}
	}
	return absent
}

// install gets missing packages from Debian, and says so. It changes nothing when all of them are there.
func install(ctx context.Context, packages []string) error {
	absent := missing(packages)
	if len(absent) == 0 {
		return nil
	}
	list := strings.Join(absent, " ")
	release, _ := os.ReadFile("/etc/os-release")
	if !isDebian(string(release)) {
		return fmt.Errorf("these are missing, and only on Debian and its kin can they be installed for you: %s; install them and run this again", list)
	}
	if err := checkRoot(); err != nil {
		return fmt.Errorf("these Debian packages are missing: %s; install them, or %w", list, err)
	}
	say("installing from Debian, because they are missing: %s", list)
	hadContainerd := find("containerd") != ""
	apt := func(args ...string) (string, error) {
		// A fresh machine may be updating itself just now.
		cmd := exec.Command("apt-get", append([]string{"-q", "-y", "-o", "DPkg::Lock::Timeout=120"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		// Out of reach of Ctrl-C, which would leave packages half installed: it ends in a minute.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		output, err := cmd.CombinedOutput()
		return string(output), err
	}
	installation := append([]string{"install", "--no-install-recommends"}, absent...)
	output, err := apt(installation...)
	if err != nil {
		// Fresh machines have no package lists, or old ones.
		if output, err = apt("update"); err == nil {
			output, err = apt(installation...)
		}
	}
	if !hadContainerd && find("containerd") != "" {
		stopService(ctx, "containerd")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted")
	}
	if err != nil {
		return fmt.Errorf("apt-get could not install %s (%v):\n%s", list, err, lastLines(output, 10))
	}
	if still := missing(packages); len(still) > 0 {
		return fmt.Errorf("apt-get has installed %s, but their programs are not found", strings.Join(still, " "))
	}
	return nil
}

// stopService ends what Debian starts, and would start at every boot, with a package that we have installed for its programs
// alone: each cluster runs a containerd of its own.
func stopService(ctx context.Context, service string) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return // systemd does not run here, so nothing was started
	}
	// Not cut short by Ctrl-C, for the same reason as the installation.
	if _, err := command(context.WithoutCancel(ctx), "", "systemctl", "disable", "--now", service); err != nil {
		say("the service %s came with its package and could not be stopped (%v); nothing here needs it", service, err)
		return
	}
	say("the service %s, which came with its package, is stopped and disabled: the cluster runs its own", service)
}

// isDebian reads /etc/os-release.
func isDebian(release string) bool {
	for _, line := range strings.Split(release, "\n") {
		key, value, _ := strings.Cut(line, "=")
		if key != "ID" && key != "ID_LIKE" {
			continue
		}
		for _, id := range strings.Fields(strings.Trim(value, `"'`)) {
			if id == "debian" {
				return true
			}
		}
	}
	return false
}

func checkRoot() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("run this as root (the cluster makes namespaces, cgroups and a network interface), or set CLUSTER=kind")
	}
	return nil
}

// checkSpace refuses to begin what the disk cannot hold.
func checkSpace(dir string, needed uint64) error {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("cannot look at the disk of %s: %w", dir, err)
	}
	free := disk.Bavail * uint64(disk.Bsize)
	if free < needed {
		return fmt.Errorf("%s has %d MB free and %d MB are needed; free some space, or set BELAY_CACHE or BELAY_STATE to another disk",
			dir, free>>20, needed>>20)
	}
	return nil
}

// lastLines is the end of a text.
func lastLines(text string, count int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > count {
		lines = lines[len(lines)-count:]
	}
	return strings.Join(lines, "\n")
}
