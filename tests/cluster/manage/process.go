package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a process that cannot be mistaken for another one which later got the same number.
type process struct {
	pid int
	// started is when it started, in the kernel's ticks since boot.
	started uint64
}

// identify finds out which process bears a number now; ok is false if none does, or only what is left of a dead one.
func identify(pid int) (p process, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false
	}
	stat, err := parseStat(string(data))
	return process{pid, stat.started}, err == nil && !stat.ended()
}

// stat is what proc(5) tells of a process that matters here.
type stat struct {
	state   string
	threads int
	started uint64
}

// ended says that nothing of the process runs any more. A killed process whose first thread has ended is a zombie already while
// its other threads still end, and until the last one has, its sockets listen.
func (s stat) ended() bool { return s.state == "X" || s.state == "Z" && s.threads <= 1 }

// parseStat reads a line of /proc/PID/stat. The program's name stands in parentheses and may itself hold spaces and
// parentheses, so the fields are counted from the last one.
func parseStat(line string) (s stat, err error) {
	fields := strings.Fields(line[strings.LastIndex(line, ")")+1:])
	const threads, startTime = 17, 19 // fields 20 and 22 of proc(5), counted from field 3
	if len(fields) <= startTime {
		return s, fmt.Errorf("cannot read %q", line)
	}
	s.state = fields[0]
	if s.threads, err = strconv.Atoi(fields[threads]); err != nil {
		return s, err
	}
	s.started, err = strconv.ParseUint(fields[startTime], 10, 64)
	return s, err
}

func (p process) alive() bool {
	now, ok := identify(p.pid)
	return ok && now == p
}

// signal sends a signal to this very process. The handle is taken before the identity is checked, so on a kernel with
// pidfds the number cannot change hands in between.
func (p process) signal(s syscall.Signal) error {
	handle, err := os.FindProcess(p.pid)
	if err != nil || !p.alive() {
		return os.ErrProcessDone
	}
	return handle.Signal(s)
}

// end sends a signal and waits until the process is gone.
func (p process) end(s syscall.Signal, patience time.Duration) error {
	if err := p.signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	for deadline := time.Now().Add(patience); p.alive(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d is still there %s after %s", p.pid, patience, s)
		}
	}
	return nil
}

// component is one program of a cluster.
type component struct {
	name    string
	command []string
	// env is what it is told besides PATH, HOME and TMPDIR.
	env []string
	// listens are the addresses that it will listen on.
	listens []string
	// healthy asks it whether it works.
	healthy func(context.Context) error
}

// patience is how long a component may take until it is healthy, on a machine that is slow and has other API servers,
// with their tests, to run besides.
const patience = 240 * time.Second

// ensure starts a component unless it runs already, and waits until it is healthy.
func (c *cluster) ensure(ctx context.Context, part component) error {
	if _, runs := c.recorded(part.name); !runs {
		if err := c.start(part); err != nil {
			return fmt.Errorf("cannot start %s: %w", part.name, err)
		}
	}
	return c.await(ctx, part.name, part.healthy)
}

// await waits until check succeeds, and fails as soon as the component that it is about has ended.
func (c *cluster) await(ctx context.Context, name string, check func(context.Context) error) error {
	deadline := time.Now().Add(patience)
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := check(attempt)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		_, runs := c.recorded(name)
		if !runs {
			err = fmt.Errorf("%s has ended", name)
		} else if time.Now().After(deadline) {
			err = fmt.Errorf("%s is not healthy after %s (%v)", name, patience, err)
		} else {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		log, _ := os.ReadFile(c.log(name))
		return fmt.Errorf("%w; the end of %s:\n%s", err, c.log(name), lastLines(string(log), 15))
	}
}

// start starts a component inside the cluster's namespaces and records it.
func (c *cluster) start(part component) error {
	for _, address := range part.listens {
		host, port, _ := strings.Cut(address, ":")
		number, _ := strconv.Atoi(port)
		if !portFree(host, number) {
			return fmt.Errorf("%s is taken by another program; find it with: ss -ltnp 'sport = :%s'", address, port)
		}
	}
	// Nothing of the caller's environment: a proxy or a GODEBUG there would make the cluster behave differently.
	pid, err := c.startInside(part.command, append([]string{
		"PATH=" + c.Bin + ":" + strings.Join(systemFolders, ":"),
		"HOME=" + c.dir,
		"TMPDIR=" + c.path("tmp"),
	}, part.env...), c.log(part.name))
	if err != nil {
		return err
	}
	started, ok := identify(pid)
	if !ok {
		return nil // ended already: await says so, with its log
	}
	return writeFile(c.path("pids", part.name), []byte(fmt.Sprintf("%d %d\n", started.pid, started.started)), 0o644)
}

// recorded returns the process of a component, and whether it runs.
func (c *cluster) recorded(name string) (process, bool) {
	var p process
	data, err := os.ReadFile(c.path("pids", name))
	if err != nil {
		return p, false
	}
	if _, err := fmt.Sscan(string(data), &p.pid, &p.started); err != nil {
		return p, false
	}
	return p, p.alive()
}

// keeper is the number of the process that holds the cluster together, or 0. It is recognised by its command line,
// so that it is found even if nothing could be recorded.
func (c *cluster) keeper() int {
	for pid, args := range keepers() {
		if args[2] == c.dir {
			return pid
		}
	}
	return 0
}

// keepers finds the keepers of all clusters on this machine, with their command lines.
func keepers() map[int][]string {
	found := map[int][]string{}
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil {
			continue
		}
		args := strings.Split(string(bytes.TrimRight(data, "\x00")), "\x00")
		if len(args) > 2 && filepath.Base(args[0]) == "belay-init" && args[1] == "hold" {
			found[pid] = args
		}
	}
	return found
}

// command runs a short program of the system and returns what it printed.
func command(ctx context.Context, input string, name string, args ...string) (string, error) {
	path := find(name)
	if path == "" {
		return "", fmt.Errorf("%s is not installed", name)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(input)
	var output, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &complaints
	if err := cmd.Run(); err != nil {
		return output.String(), fmt.Errorf("%s %s: %v: %s", name, strings.Join(args, " "), err, strings.TrimSpace(complaints.String()))
	}
	return output.String(), nil
}

// together runs functions at the same time and returns the first error; the others are told to stop.
func together(ctx context.Context, functions ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := make(chan error)
	for _, function := range functions {
		go func() { results <- function(ctx) }()
	}
	var first error
	for range functions {
		if err := <-results; err != nil && first == nil {
			first = err
			cancel(err)
		}
	}
	return first
}
