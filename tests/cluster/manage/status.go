package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// status prints a line for each component of a cluster, or of all clusters, and fails if one of them is not well.
func status(ctx context.Context, name string) error {
	names := []string{name}
	if name == "" {
		names = nil
		for _, candidate := range clusterNames(stateRoot()) {
			// Of one that did not come up only the logs are there.
			if _, err := load(candidate); !errors.Is(err, fs.ErrNotExist) {
				names = append(names, candidate)
			}
		}
		if len(names) == 0 {
			say("no cluster is up")
			return nil
		}
	}
	var ill []string
	for _, name := range names {
		c, err := running(name)
		if err != nil {
			return err
		}
		for _, part := range c.parts() {
			state := "running"
			p, runs := c.recorded(part.name)
			if !runs {
				state = "ended"
			} else if err := asked(ctx, part.healthy); err != nil {
				state = "ill: " + err.Error()
			}
			if state != "running" {
				ill = append(ill, c.Name+"/"+part.name)
			}
			fmt.Printf("%-10s %-26s %7d  %-8s %s\n", c.Name, part.name, p.pid, state, c.log(part.name))
		}
	}
	if len(ill) > 0 {
		return fmt.Errorf("not well: %s; up (or apiserver start, for the numbered ones) starts them again", strings.Join(ill, ", "))
	}
	return nil
}

// parts are the components that were started for this cluster and not stopped by a command.
func (c *cluster) parts() (parts []component) {
	candidates := []component{c.etcd(), c.apiServer(0), c.controllerManager(0), c.scheduler(), c.containerd(), c.kubelet()}
	for index := 1; index < apiServers; index++ {
		candidates = append(candidates, c.apiServer(index), c.controllerManager(index))
	}
	for _, part := range candidates {
		if _, err := os.Stat(c.path("pids", part.name)); err == nil {
			parts = append(parts, part)
		}
	}
	return parts
}

func asked(ctx context.Context, healthy func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return healthy(ctx)
}
