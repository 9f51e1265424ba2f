package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// request asks for one program to be started.
type request struct {
	Command []string `json:"command"`
	Env     []string `json:"env"`
	// Log gets its output.
	Log string `json:"log"`
}

// hold furnishes the mount namespace, then starts programs for whoever asks on the socket DIR/init.sock, and says
// "ready" on standard output.
func hold(dir string, binds []string) error {
	if err := furnish(binds); err != nil {
		return err
	}
	path := filepath.Join(dir, "init.sock")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	go func() {
		for {
			if conn, err := listener.AcceptUnix(); err == nil {
				go serve(conn, dir)
			}
		}
	}()
	fmt.Println("ready")
	return nil
}

// furnish gives the mount namespace its own /proc and the cluster's own folders.
func furnish(binds []string) error {
	// Slave, not private: what the machine unmounts later must not stay busy because of us.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("making / a slave mount: %w", err)
	}
	flags := uintptr(syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC)
	if err := syscall.Mount("proc", "/proc", "proc", flags, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	for _, bind := range binds {
		target, source, found := strings.Cut(bind, "=")
		if !found {
			return fmt.Errorf("%q is not TARGET=SOURCE", bind)
		}
		if err := syscall.Mount(source, target, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("binding %s over %s: %w", source, target, err)
		}
	}
	return nil
}

// serve answers one request: with "ok" and, as the credentials of the message, the number of the new process, or with
// what went wrong. The number is sent in this way because the kernel then translates it into the one that the process has
// for the receiver, outside of our namespace.
func serve(conn *net.UnixConn, dir string) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	pid, err := start(conn, dir)
	if err == nil {
		credentials := syscall.UnixCredentials(&syscall.Ucred{Pid: int32(pid)})
		_, _, err = conn.WriteMsgUnix([]byte("ok"), credentials, nil)
		if errors.Is(err, syscall.ESRCH) {
			err = errors.New("it has ended at once")
		}
	}
	if err != nil {
		_, _ = conn.Write([]byte(err.Error()))
	}
}

func start(conn *net.UnixConn, dir string) (pid int, err error) {
	var wanted request
	if err := json.NewDecoder(conn).Decode(&wanted); err != nil {
		return 0, err
	}
	if len(wanted.Command) == 0 {
		return 0, errors.New("no command")
	}
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer nothing.Close()
	log, err := os.OpenFile(wanted.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	process, err := os.StartProcess(wanted.Command[0], wanted.Command, &os.ProcAttr{
		Dir:   dir,
		Env:   wanted.Env,
		Files: []*os.File{nothing, log, log},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, err
	}
	defer process.Release() // main reaps
	return process.Pid, nil
}
