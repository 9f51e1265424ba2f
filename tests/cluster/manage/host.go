package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
)

// privatePaths are compiled into the shim, the CNI library and the kubelet. Every cluster sees folders of its own
// there, so that it neither disturbs a containerd or kubelet of the machine nor leaves files behind.
var privatePaths = []string{
	"/run/containerd",     // sockets of the shims
	"/var/lib/cni",        // results of CNI calls
	"/var/lib/kubelet",    // device plugins
	"/var/log/containers", // links to container logs
}

// kernelSettings are what a kubelet sets when it starts.
var kernelSettings = []string{
	"vm/overcommit_memory",
	"vm/panic_on_oom",
	"kernel/panic",
	"kernel/panic_on_oops",
	"kernel/keys/root_maxkeys",
	"kernel/keys/root_maxbytes",
}

// machineFolder is one place for all clusters, whatever BELAY_STATE says: the machine is only one. It is in /run because
// what it tells of does not outlive a boot either.
const machineFolder = "/run/belay"

// machine is what the first cluster found, and what the last one puts back.
type machine struct {
	Settings map[string]string `json:"settings"`
	// Made are the folders that had to be made because something must be there to be mounted over.
	Made []string `json:"made"`
}

// prepareMachine records the machine as it is, unless another cluster has done so, and makes what is missing. Until
// unlock is called, no other cluster can put it back.
func prepareMachine() (unlock func(), err error) {
	unlock, err = lockFolder(machineFolder, syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	record := filepath.Join(machineFolder, "machine.json")
	if _, err := os.Stat(record); errors.Is(err, fs.ErrNotExist) {
		data, err := json.MarshalIndent(look(), "", "  ")
		if err != nil {
			return nil, err
		}
		if err := writeFile(record, append(data, '\n'), 0o644); err != nil {
			return nil, err
		}
	}
	for _, path := range privatePaths {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, err
		}
	}
	return unlock, nil
}

// look takes stock of all that a cluster is going to change.
func look() machine {
	found := machine{Settings: map[string]string{}}
	for _, name := range kernelSettings {
		if value, err := os.ReadFile("/proc/sys/" + name); err == nil {
			found.Settings[name] = strings.TrimSpace(string(value))
		}
	}
	for _, path := range privatePaths {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			found.Made = append(found.Made, path)
		}
	}
	return found
}

// restoreMachine undoes prepareMachine, and what kubelets did to the kernel, when no cluster is left.
func restoreMachine() error {
	unlock, err := lockFolder(machineFolder, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	defer os.Remove(machineFolder) // only if nothing is left in it
	// While another cluster has mounts on the folders, removing those would take the mounts away too.
	if len(keepers()) > 0 {
		return nil
	}
	record := filepath.Join(machineFolder, "machine.json")
	data, err := os.ReadFile(record)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var found machine
	if err := json.Unmarshal(data, &found); err != nil {
		return fmt.Errorf("%s cannot be read: %w", record, err)
	}
	for name, value := range found.Settings {
		path := "/proc/sys/" + name
		if now, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(now)) == value {
			continue
		}
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			return fmt.Errorf("cannot set %s back to %s: %w", path, value, err)
		}
	}
	for _, path := range found.Made {
		os.Remove(path) // only if it is empty: what somebody else put there stays
	}
	return os.Remove(record)
}

// unmountAll detaches whatever is still mounted below a folder, deepest first. The cluster's mounts are in a namespace
// of their own and go with it; this is for those that somebody made by hand.
func unmountAll(dir string) error {
	points := mountsBelow(dir)
	for _, point := range points {
		if err := detach(point); err != nil {
			return fmt.Errorf("cannot unmount %s: %w", point, err)
		}
	}
	if left := mountsBelow(dir); len(left) > 0 {
		return fmt.Errorf("%s is still mounted", left[0])
	}
	return nil
}

func mountsBelow(dir string) []string {
	table, _ := os.ReadFile("/proc/self/mountinfo")
	var points []string
	for _, point := range mountPoints(string(table), "") {
		if strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	sort.Sort(sort.Reverse(sort.StringSlice(points)))
	return points
}

// mountPoints reads /proc/self/mountinfo; with a type, only mounts of that file system.
func mountPoints(table, fileSystem string) (points []string) {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for _, line := range strings.Split(table, "\n") {
		before, after, found := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !found || len(fields) < 5 || len(rest) < 1 {
			continue
		}
		if fileSystem == "" || rest[0] == fileSystem {
			points = append(points, unescape.Replace(fields[4]))
		}
	}
	return points
}
