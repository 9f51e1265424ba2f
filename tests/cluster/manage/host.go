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

// machine is what the first cluster found, and what the last one puts back.
type machine struct {
	Settings map[string]string `json:"settings"`
	// Made are the folders that had to be made because something must be there to be mounted over.
	Made []string `json:"made"`
}

// prepareMachine records the machine as it is, unless another cluster has done so, and makes what is missing.
func prepareMachine() error {
	root := stateRoot()
	unlock, err := lockFolder(root, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	record := filepath.Join(root, "machine.json")
	if _, err := os.Stat(record); errors.Is(err, fs.ErrNotExist) {
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
		data, err := json.MarshalIndent(found, "", "  ")
		if err != nil {
			return err
		}
		if err := writeFile(record, append(data, '\n'), 0o644); err != nil {
			return err
		}
	}
	for _, path := range privatePaths {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// restoreMachine undoes prepareMachine, and what kubelets did to the kernel, when no cluster is left.
func restoreMachine() error {
	root := stateRoot()
	if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := lockFolder(root, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	for _, name := range clusterNames(root) {
		if _, err := os.Stat(filepath.Join(root, name, "cluster.json")); err == nil {
			return nil
		}
	}
	// Clusters under another BELAY_STATE still have their mounts on the folders, which removing would detach.
	if len(keepers()) > 0 {
		return nil
	}
	record := filepath.Join(root, "machine.json")
	data, err := os.ReadFile(record)
	if err == nil {
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
		if err := os.Remove(record); err != nil {
			return err
		}
	}
	os.Remove(root) // only if nothing is left in it
	return nil
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
