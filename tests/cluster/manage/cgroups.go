package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroup is the parent of all control groups of the cluster's pods.
func (c *cluster) cgroup() string { return "belay-" + c.Name }

// hierarchies lists where control groups are mounted: one place on a machine with cgroup v2, one per controller on one
// with v1. On a machine with both, v1 has the controllers.
func hierarchies() (v1, v2 []string) {
	table, _ := os.ReadFile("/proc/self/mountinfo")
	return mountPoints(string(table), "cgroup"), mountPoints(string(table), "cgroup2")
}

// makeCgroups makes the parent that the kubelet expects to find.
func (c *cluster) makeCgroups() error {
	v1, v2 := hierarchies()
	if len(v1)+len(v2) == 0 {
		return errors.New("no control groups are mounted on /sys/fs/cgroup, and a kubelet needs them; use --no-node or CLUSTER=kind")
	}
	for _, hierarchy := range v1 {
		group := filepath.Join(hierarchy, c.cgroup())
		if err := makeGroup(group); err != nil {
			return err
		}
		// A new group of this controller has neither processors nor memory, and takes no process until it gets some.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if own, err := os.ReadFile(filepath.Join(group, file)); err != nil || strings.TrimSpace(string(own)) != "" {
				continue
			}
			value, err := os.ReadFile(filepath.Join(hierarchy, file))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(group, file), value, 0o644); err != nil {
				return err
			}
		}
	}
	if len(v1) > 0 {
		return nil
	}
	for _, hierarchy := range v2 {
		// Children have only those controllers that their parent hands down. systemd hands down most of them already.
		for _, controller := range []string{"cpu", "cpuset", "io", "memory", "pids", "hugetlb"} {
			_ = os.WriteFile(filepath.Join(hierarchy, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		}
		if err := makeGroup(filepath.Join(hierarchy, c.cgroup())); err != nil {
			return err
		}
	}
	return nil
}

func makeGroup(group string) error {
	if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot make the control group %s (%v); a container without write access to /sys/fs/cgroup cannot run a node", group, err)
	}
	return nil
}

// removeCgroups ends whatever still runs in the cluster's control groups and removes them.
func (c *cluster) removeCgroups() error {
	v1, v2 := hierarchies()
	for _, hierarchy := range append(v1, v2...) {
		top := filepath.Join(hierarchy, c.cgroup())
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			err := removeGroup(top)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("cannot remove the control group %s: %w", top, err)
			}
		}
	}
	return nil
}

// removeGroup removes a group with its children. The kernel lets go of a group only a moment after its last process.
func removeGroup(group string) error {
	entries, err := os.ReadDir(group)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var failed error
	for _, entry := range entries {
		if entry.IsDir() {
			failed = errors.Join(failed, removeGroup(filepath.Join(group, entry.Name())))
		}
	}
	processes, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	for _, field := range strings.Fields(string(processes)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return errors.Join(failed, os.Remove(group))
}
