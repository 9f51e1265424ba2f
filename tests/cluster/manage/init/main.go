// Command belay-init is process 1: of a cluster's namespaces, and of every pod sandbox in it.
//
// Called as `belay-init hold DIR TARGET=SOURCE...` it is the process that holds a cluster together. It is started in
// a PID and a mount namespace of its own, and starts everything else of the cluster on request. When it is killed, the
// kernel kills all that runs in its PID namespace, and with the last of them the mounts go too: that is why nothing
// of a cluster can outlive `down`, whatever crashed before. Each TARGET is a path that some program has compiled
// in (a kubelet's device plugins, a shim's sockets); inside, it shows SOURCE, a folder of this cluster, so that a
// containerd or a kubelet of the machine itself is never touched.
//
// Called without arguments it is the "pause" container: it keeps a pod's namespaces open, and reaps.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// Registered first: process 1 is not ended by a signal that it has no handler for.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)

	if len(os.Args) > 2 && os.Args[1] == "hold" {
		if err := hold(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, "belay-init:", err)
			os.Exit(1)
		}
	}

	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap collects every child that has ended; several may hide behind one SIGCHLD.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if pid <= 0 || err != nil {
			return
		}
	}
}
