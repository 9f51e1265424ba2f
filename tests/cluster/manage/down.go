package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// down removes everything that up has made, however far up came and whatever has crashed since.
func (e embedded) down(context.Context) error {
	if err := checkRoot(); err != nil {
		return err
	}
	if err := at(e.name).checkNamesake(); err != nil {
		return err
	}
	started := time.Now()
	existed := false
	if _, err := os.Stat(at(e.name).dir); err == nil {
		existed = true
	}
	unlock, err := lockFolder(at(e.name).dir, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	c := at(e.name)
	existed = existed || c.keeper() != 0
	if err := c.tearDown(false); err != nil {
		return err
	}
	if !existed {
		say("there is no cluster %s", e.name)
		return nil
	}
	say("cluster %s is gone after %.1f s", e.name, time.Since(started).Seconds())
	return nil
}

// tearDown removes a cluster. It relies on no record: each thing is found by the name that it bears. It is not
// interrupted either: it takes seconds, and half a removal is what it is there to clean up.
func (c *cluster) tearDown(keepLogs bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	// With the keeper the kernel ends every process of the cluster, and with the last of them go the mounts.
	if pid := c.keeper(); pid != 0 {
		if keeper, ok := identify(pid); ok {
			if err := keeper.end(syscall.SIGKILL, 20*time.Second); err != nil {
				return fmt.Errorf("belay-init: %w", err)
			}
		}
	}
	// What is recorded from before a boot says nothing of the processes of today.
	if known, err := load(c.Name); err == nil && known.Boot == bootID() {
		if err := c.endBeside(); err != nil {
			return err
		}
	}
	err := errors.Join(
		c.removeNetwork(ctx),
		c.removeCgroups(),
		unmountAll(c.dir),
	)
	if err != nil {
		return fmt.Errorf("cluster %s is not gone yet, run down again: %w", c.Name, err)
	}
	if err := c.removeFolder(keepLogs); err != nil {
		return err
	}
	os.Remove(stateRoot()) // only if it was the last one there
	return restoreMachine()
}

// endBeside ends what runs outside of the cluster's namespaces, for its sake, and was recorded as its components are. The
// demo's stand-ins do.
func (c *cluster) endBeside() error {
	records, _ := os.ReadDir(c.path("pids"))
	for _, record := range records {
		if p, runs := c.recorded(record.Name()); runs && p.end(syscall.SIGTERM, 5*time.Second) != nil {
			if err := p.end(syscall.SIGKILL, 5*time.Second); err != nil {
				return fmt.Errorf("%s: %w", record.Name(), err)
			}
		}
	}
	return nil
}

// removeFolder removes the cluster's folder, or all of it but the logs.
func (c *cluster) removeFolder(keepLogs bool) error {
	if !keepLogs {
		return os.RemoveAll(c.dir)
	}
	entries, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if entry.Name() != "logs" {
			err = errors.Join(err, os.RemoveAll(c.path(entry.Name())))
		}
	}
	return err
}
