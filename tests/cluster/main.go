// Command kube is a whole Kubernetes in one file: it behaves as the program whose name it is called by.
//
// The published modules hold everything that the upstream release binaries hold, so one build gives the real
// etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kubectl without pulling an image
// or downloading a release. One binary instead of six saves some 500 MB and most of the link time.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/pkg/controller/job"
)

// programs are the names by which manage links this binary, besides etcd, which brings its own main.
var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

// shortenWaits makes the Job controller replace a failed pod after a second instead of ten, and notice a pod's end at once
// instead of within a second. There is no flag for either, and a suite of Helm upgrades spends minutes on them. manage asks for
// it where a cluster is brought up with --short-waits.
func shortenWaits() {
	job.DefaultJobPodFailureBackOff = time.Second
	job.SyncJobBatchPeriod = 50 * time.Millisecond
}

func main() {
	if os.Getenv("BELAY_SHORT_WAITS") != "" {
		shortenWaits()
	}
	name := filepath.Base(os.Args[0])
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	newCommand, known := programs[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%s: call this binary through a link named etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet or kubectl\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(newCommand()))
}
