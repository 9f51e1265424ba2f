//go:build !linux

package main

import (
	"context"
	"errors"
)

// Elsewhere only kind and existing clusters can be used; main refuses the rest before it comes to this.
var errNotLinux = errors.New("namespaces need Linux")

func (c *cluster) startKeeper(context.Context) error { return errNotLinux }

func (c *cluster) startInside([]string, []string, string) (int, error) { return 0, errNotLinux }

func detach(string) error { return errNotLinux }
