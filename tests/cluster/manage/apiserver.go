package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
)

// startAPIServer starts one more API server, or again one that was ended, and prints the path of its kubeconfig.
func startAPIServer(ctx context.Context, name string, index int, withControllers bool, extra string) error {
	c, unlock, err := withAPIServer(name, index)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.writeKubeconfig(c.kubeconfig(index), "admin", index); err != nil {
		return err
	}
	if err := c.ensure(ctx, c.apiServer(index, strings.Fields(extra)...)); err != nil {
		return interruptedOr(ctx, err)
	}
	if withControllers {
		controllers := c.controllerManager(index)
		if err := c.writeKubeconfig(c.path(controllers.name+".kubeconfig"), "kube-controller-manager", index); err != nil {
			return err
		}
		if err := c.ensure(ctx, controllers); err != nil {
			return interruptedOr(ctx, err)
		}
		if err := c.await(ctx, controllers.name, c.controllersWork(index)); err != nil {
			return interruptedOr(ctx, err)
		}
	}
	fmt.Println(c.kubeconfig(index))
	return nil
}

// endAPIServer ends an API server. Stopping an additional one also stops its controllers; killing one is for tests of
// what the others make of it.
func endAPIServer(_ context.Context, name string, index int, how syscall.Signal) error {
	c, unlock, err := withAPIServer(name, index)
	if err != nil {
		return err
	}
	defer unlock()
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

// withAPIServer loads a running cluster and keeps others from working on the same API server, or taking the cluster down.
func withAPIServer(name string, index int) (c *cluster, unlock func(), err error) {
	if index < 0 || index >= apiServers {
		return nil, nil, fmt.Errorf("--index must be 0 to %d (%w)", apiServers-1, errUsage)
	}
	if err := checkRoot(); err != nil {
		return nil, nil, err
	}
	if c, err = running(name); err != nil {
		return nil, nil, err
	}
	unlockCluster, err := lockFolder(c.dir, syscall.LOCK_SH)
	if err != nil {
		return nil, nil, err
	}
	unlockServer, err := lockFolder(c.path("locks", numbered("kube-apiserver", index)), syscall.LOCK_EX)
	if err != nil {
		unlockCluster()
		return nil, nil, err
	}
	unlock = func() { unlockServer(); unlockCluster() }
	// It may have been taken down while we waited.
	if c.keeper() == 0 {
		unlock()
		return nil, nil, fmt.Errorf("cluster %s has just been taken down", name)
	}
	return c, unlock, nil
}

// interruptedOr turns whatever an interruption led to into a plain word.
func interruptedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}
