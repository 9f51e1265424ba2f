package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// startKeeper starts the process that holds the cluster together, in new PID and mount namespaces.
func (c *cluster) startKeeper(ctx context.Context) error {
	args := []string{"hold", c.dir}
	for _, path := range privatePaths {
		source := c.path("private", strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "-"))
		if err := os.MkdirAll(source, 0o755); err != nil {
			return err
		}
		args = append(args, path+"="+source)
	}
	log, err := os.Create(c.log("belay-init"))
	if err != nil {
		return err
	}
	defer log.Close()
	ready, written, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command(c.program("belay-init"), args...)
	cmd.Stdout, cmd.Stderr = written, log
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		Setsid:     true,
	}
	err = cmd.Start()
	written.Close()
	if err != nil {
		return fmt.Errorf("cannot make namespaces: %w", err)
	}
	go cmd.Wait()
	ready.SetReadDeadline(time.Now().Add(10 * time.Second))
	if line, err := bufio.NewReader(ready).ReadString('\n'); err != nil || line != "ready\n" {
		complaint, _ := os.ReadFile(c.log("belay-init"))
		return fmt.Errorf("belay-init did not start: %s", lastLines(string(complaint), 5))
	}
	return ctx.Err()
}

// startInside starts a command in the namespaces of the keeper.
//
// Namespaces are entered by a thread, and what a thread starts begins life in them. So a thread is given up for it:
// it stays locked to its goroutine and ends with it, and the rest of this program stays where it is.
func startInside(keeper int, cmd *exec.Cmd) error {
	if keeper == 0 {
		return fmt.Errorf("belay-init has ended")
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		result <- func() error {
			// The threads of a process share root and working directory; one that does not is free to leave.
			if err := syscall.Unshare(syscall.CLONE_FS); err != nil {
				return fmt.Errorf("unshare: %w", err)
			}
			for _, kind := range []struct {
				name string
				flag uintptr
			}{{"pid", syscall.CLONE_NEWPID}, {"mnt", syscall.CLONE_NEWNS}} {
				namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", keeper, kind.name))
				if err != nil {
					return err
				}
				defer namespace.Close()
				if _, _, errno := syscall.RawSyscall(setns, namespace.Fd(), kind.flag, 0); errno != 0 {
					return fmt.Errorf("entering the %s namespace of process %d: %w", kind.name, keeper, errno)
				}
			}
			return cmd.Start()
		}()
	}()
	return <-result
}

// detach unmounts even what is still in use.
func detach(point string) error { return syscall.Unmount(point, syscall.MNT_DETACH) }
