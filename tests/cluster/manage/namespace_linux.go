package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
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

// startInside asks the keeper to start a program, and returns the number of its process.
func (c *cluster) startInside(command, env []string, log string) (pid int, err error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: c.path("init.sock")})
	if err != nil {
		return 0, fmt.Errorf("belay-init does not answer: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var refused error
	if err := raw.Control(func(socket uintptr) {
		refused = syscall.SetsockoptInt(int(socket), syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1)
	}); err != nil || refused != nil {
		return 0, errors.Join(err, refused)
	}
	request := map[string]any{"command": command, "env": env, "log": log}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return 0, err
	}
	answer, credentials := make([]byte, 4096), make([]byte, 256)
	n, size, _, _, err := conn.ReadMsgUnix(answer, credentials)
	if err != nil {
		return 0, fmt.Errorf("belay-init does not answer: %w", err)
	}
	if text := string(answer[:n]); text != "ok" {
		return 0, errors.New(text)
	}
	messages, err := syscall.ParseSocketControlMessage(credentials[:size])
	if err != nil {
		return 0, err
	}
	for _, message := range messages {
		if sender, err := syscall.ParseUnixCredentials(&message); err == nil {
			return int(sender.Pid), nil
		}
	}
	return 0, errors.New("belay-init did not say which process it started")
}

// detach unmounts even what is still in use.
func detach(point string) error { return syscall.Unmount(point, syscall.MNT_DETACH) }
