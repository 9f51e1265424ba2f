package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startAPIServers starts more API servers, or again those that were ended, all at the same time, and prints the paths of their
// kubeconfigs, joined by colons.
func startAPIServers(ctx context.Context, name string, indexes []int, withControllers bool, extra string) error {
	c, unlock, err := withAPIServers(name, indexes)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.runAPIServers(ctx, indexes, withControllers, strings.Fields(extra)...); err != nil {
		return interruptedOr(ctx, err)
	}
	var kubeconfigs []string
	for _, index := range indexes {
		kubeconfigs = append(kubeconfigs, c.kubeconfig(index))
	}
	fmt.Println(strings.Join(kubeconfigs, ":"))
	return nil
}

// runAPIServers makes sure that these API servers run, and their controllers if they are wanted. Most of a start is spent
// waiting, so they start side by side.
func (c *cluster) runAPIServers(ctx context.Context, indexes []int, withControllers bool, extra ...string) error {
	var starts []func(context.Context) error
	for _, index := range indexes {
		starts = append(starts, func(ctx context.Context) error {
			if err := c.writeKubeconfig(c.kubeconfig(index), "admin", index); err != nil {
				return err
			}
			if err := c.ensure(ctx, c.apiServer(index, extra...)); err != nil || !withControllers {
				return err
			}
			return c.runControllers(ctx, index)
		})
	}
	return together(ctx, starts...)
}

// runControllers makes sure that the controllers of an API server run, and have begun to work.
func (c *cluster) runControllers(ctx context.Context, index int) error {
	controllers := c.controllerManager(index)
	if err := c.writeKubeconfig(c.path(controllers.name+".kubeconfig"), "kube-controller-manager", index); err != nil {
		return err
	}
	if err := c.ensure(ctx, controllers); err != nil {
		return err
	}
	return c.await(ctx, controllers.name, c.controllersWork(index))
}

// endAPIServers ends API servers. Stopping an additional one also stops its controllers; killing one is for tests of
// what the others make of it.
func endAPIServers(ctx context.Context, name string, indexes []int, how syscall.Signal) error {
	c, unlock, err := withAPIServers(name, indexes)
	if err != nil {
		return err
	}
	defer unlock()
	var ends []func(context.Context) error
	for _, index := range indexes {
		ends = append(ends, func(context.Context) error { return c.endAPIServer(index, how) })
	}
	return together(ctx, ends...)
}

func (c *cluster) endAPIServer(index int, how syscall.Signal) error {
	parts := []string{numbered("kube-apiserver", index)}
	if index > 0 && how == syscall.SIGTERM {
		parts = append([]string{numbered("kube-controller-manager", index)}, parts...)
	}
	for _, part := range parts {
		if p, runs := c.recorded(part); runs && p.end(how, 20*time.Second) != nil {
			if err := p.end(syscall.SIGKILL, 10*time.Second); err != nil {
				return fmt.Errorf("%s: %w", part, err)
			}
		}
		if how == syscall.SIGKILL {
			continue // its record stays: `status` shows what has ended without having been stopped
		}
		if err := os.Remove(c.path("pids", part)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// withAPIServers loads a running cluster and keeps others from working on the same API servers, or taking the cluster down.
func withAPIServers(name string, indexes []int) (c *cluster, unlock func(), err error) {
	if err := checkRoot(); err != nil {
		return nil, nil, err
	}
	if c, err = running(name); err != nil {
		return nil, nil, err
	}
	var unlocks []func()
	unlock = func() {
		for _, one := range unlocks {
			one()
		}
	}
	lock := func(folder string, how int) {
		if err != nil {
			return
		}
		var one func()
		if one, err = lockFolder(folder, how); err == nil {
			unlocks = append(unlocks, one)
		}
	}
	lock(c.dir, syscall.LOCK_SH)
	// They are sorted: two commands that want several never wait for each other.
	for _, index := range indexes {
		lock(c.path("locks", numbered("kube-apiserver", index)), syscall.LOCK_EX)
	}
	// It may have been taken down while we waited.
	if err == nil && c.keeper() == 0 {
		err = fmt.Errorf("cluster %s has just been taken down", name)
	}
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return c, unlock, nil
}

// parseIndexes reads which API servers are meant: one number, or several between commas. They come back sorted, each once.
func parseIndexes(text string, first int) (indexes []int, err error) {
	for _, word := range strings.Split(text, ",") {
		index, err := strconv.Atoi(word)
		if err != nil || index < first || index >= apiServers {
			return nil, fmt.Errorf("API servers are numbers from %d to %d with commas between them, not %q (%w)", first, apiServers-1, text, errUsage)
		}
		indexes = append(indexes, index)
	}
	slices.Sort(indexes)
	return slices.Compact(indexes), nil
}

// interruptedOr turns whatever an interruption led to into a plain word.
func interruptedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}
