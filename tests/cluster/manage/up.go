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

// upOptions are what the flags of `up` choose.
type upOptions struct {
	// withNode is whether pods can run.
	withNode bool
	// shortWaits makes the controllers wait less than upstream's do. A cluster keeps what it was made with.
	shortWaits bool
	// apiServers are started too, with controllers and objects of their own.
	apiServers []int
}

// embedded is the cluster that this program makes itself.
type embedded struct{ name string }

// up brings a cluster up, or whatever is missing of one that is up already. If a new one cannot be completed, or the person
// loses patience, all that was made is removed again; of a failure the logs stay.
func (e embedded) up(ctx context.Context, options upOptions) error {
	started := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go watchParent(ctx, cancel)

	if err := checkRoot(); err != nil {
		return err
	}
	// Sockets have to be named in 107 characters, and a cluster's name takes up to 20.
	if root := stateRoot(); len(root) > 60 || !strings.HasPrefix(root, "/") || strings.ContainsAny(root, " \t\n\"'\\$") {
		return fmt.Errorf("BELAY_STATE must be a short absolute path without blanks, quotes and dollar signs, not %q", root)
	}
	if err := at(e.name).checkNamesake(); err != nil {
		return err
	}
	bin, err := build(ctx)
	if err != nil {
		return err
	}
	packages := nodePackages
	if !options.withNode {
		packages = []string{"iproute2"}
	}
	if err := install(ctx, packages); err != nil {
		return err
	}

	unlock, err := lockFolder(at(e.name).dir, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := load(e.name)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err != nil && !isNew {
		return fmt.Errorf("%w; remove the cluster with: down --name %s", err, e.name)
	}
	if !isNew && c.keeper() == 0 && c.Boot != bootID() {
		// Its store was never written to the disk in earnest, and its processes' numbers belong to others now.
		say("cluster %s ended when the machine did; it is made anew", c.Name)
		if err := c.tearDown(true); err != nil {
			return err
		}
		c, isNew = at(e.name), true
	}
	if _, err := os.Stat(c.Bin); err != nil || c.keeper() == 0 {
		c.Bin = bin
	} else if c.Bin != bin {
		say("cluster %s is up with programs built from other sources (%s); for the new ones take it down first", c.Name, c.Bin)
	}
	if isNew {
		if err := checkSpace(stateRoot(), 1<<29); err != nil {
			return err
		}
		c.ShortWaits = options.shortWaits
		if err := c.claim(); err != nil {
			return err
		}
	} else if options.shortWaits && !c.ShortWaits {
		return fmt.Errorf("cluster %s was brought up without --short-waits; take it down first: down --name %s", c.Name, c.Name)
	}

	err = c.complete(ctx, options)
	if err == nil {
		say("cluster %s is up after %.1f s; logs are in %s", c.Name, time.Since(started).Seconds(), c.path("logs"))
		say("for kubectl, helm3 and helm4 of this cluster: . %s", c.path("env"))
		fmt.Printf("export KUBECONFIG=%s\n", c.kubeconfig(0))
		return nil
	}
	interrupted := ctx.Err() != nil
	if interrupted {
		err = fmt.Errorf("interrupted")
	}
	if !isNew {
		return err
	}
	say("removing again what was made")
	if failure := c.tearDown(!interrupted); failure != nil {
		return errors.Join(err, failure)
	}
	return err
}

// complete makes everything that the cluster needs and that is not there yet.
func (c *cluster) complete(ctx context.Context, options upOptions) error {
	for _, folder := range []string{"logs", "logs/pods", "pids", "tmp", "etcd"} {
		if err := os.MkdirAll(c.path(folder), 0o755); err != nil {
			return err
		}
	}
	if err := c.save(); err != nil {
		return err
	}
	if err := c.makeCertificates(); err != nil {
		return err
	}
	for file, user := range map[string]string{
		c.kubeconfig(0):                     "admin",
		c.path("kube-scheduler.kubeconfig"): "kube-scheduler",
		c.path("kubelet.kubeconfig"):        "kubelet",
	} {
		if err := c.writeKubeconfig(file, user, 0); err != nil {
			return err
		}
	}
	if err := c.writeEnv(); err != nil {
		return err
	}
	if c.keeper() == 0 {
		unlock, err := prepareMachine()
		if err != nil {
			return err
		}
		err = c.startKeeper(ctx)
		unlock()
		if err != nil {
			return err
		}
	}
	if err := c.makeNetwork(ctx); err != nil {
		return err
	}

	// The runtime needs nothing of the control plane, so both come up side by side; API servers need nothing but etcd.
	runtimeReady := make(chan struct{})
	parts := []func(context.Context) error{func(ctx context.Context) error {
		if err := c.ensure(ctx, c.etcd()); err != nil {
			return err
		}
		return together(ctx, func(ctx context.Context) error {
			return c.runControlPlane(ctx, options.withNode, runtimeReady)
		}, func(ctx context.Context) error {
			return c.runAPIServers(ctx, options.apiServers, true)
		})
	}}
	if options.withNode {
		parts = append(parts, func(ctx context.Context) error {
			if err := c.runRuntime(ctx); err != nil {
				return err
			}
			close(runtimeReady)
			return nil
		})
	}
	return together(ctx, parts...)
}

// runControlPlane makes sure that the first API server runs with all that works for it: its controllers, the scheduler and,
// once containers can run, the kubelet.
func (c *cluster) runControlPlane(ctx context.Context, withNode bool, runtimeReady <-chan struct{}) error {
	if err := c.ensure(ctx, c.apiServer(0)); err != nil {
		return err
	}
	return together(ctx, func(ctx context.Context) error {
		return c.runControllers(ctx, 0)
	}, func(ctx context.Context) error {
		return c.ensure(ctx, c.scheduler())
	}, func(ctx context.Context) error {
		if !withNode {
			return nil
		}
		select {
		case <-runtimeReady:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := c.ensure(ctx, c.kubelet()); err != nil {
			return err
		}
		return c.await(ctx, "kubelet", c.nodeReady)
	})
}

// runRuntime makes sure that containers can run.
func (c *cluster) runRuntime(ctx context.Context) error {
	if err := c.makeRules(ctx); err != nil {
		return err
	}
	if err := c.makeCgroups(); err != nil {
		return err
	}
	if err := c.writeNodeConfig(); err != nil {
		return err
	}
	if err := c.ensure(ctx, c.containerd()); err != nil {
		return err
	}
	return c.importSandboxImage(ctx)
}

// watchParent treats the end of `go run` as an interruption: it does not pass SIGTERM on, and whoever has ended it wants
// us to end too.
func watchParent(ctx context.Context, cancel context.CancelCauseFunc) {
	parent := os.Getppid()
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	if err != nil || strings.TrimSpace(string(name)) != "go" {
		return
	}
	for ctx.Err() == nil {
		if os.Getppid() != parent {
			cancel(errors.New("interrupted"))
		}
		time.Sleep(200 * time.Millisecond)
	}
}
