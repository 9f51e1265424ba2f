// Command manage brings up a real Kubernetes cluster on this machine, and takes it down without leaving a trace.
//
// Run it as `go -C tests/cluster/manage run . COMMAND`. It needs nothing but Go's standard library, so it starts
// in a second on a fresh clone; `build` then makes Kubernetes and Helm from their published modules, once.
//
// The files, in the order in which they are best read: up.go and down.go tell the story; cluster.go says what a
// cluster is and where its things live; components.go which programs run, and with which flags; process.go how
// they are started, watched and ended; network.go, cgroups.go and host.go what is changed on the machine; certs.go,
// image.go, build.go and install.go make what the cluster needs; apiserver.go adds more API servers; elsewhere.go
// is for clusters that are not ours (kind, or an existing one).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
)

const usage = `Usage: go -C tests/cluster/manage run . COMMAND

  build                             build Kubernetes, Helm 3 and Helm 4 into the cache
  up [--name N] [--no-node] [--short-waits] [--apiservers I,J,...]
                                    bring a cluster up (again: repair it), print "export KUBECONFIG=..."; with --short-waits
                                    Jobs, autoscalers and the deletion of namespaces wait less than upstream's, for tests;
                                    with --apiservers more API servers come up with it, with controllers
  down [--name N]                   take it down, with everything that up made
  status [--name N]                 one line per component; without --name of all clusters
  where [--name N]                  print the folder of a cluster, which holds its env once it is up
  load-image [--name N] [--as REF] ARCHIVE
                                    import an oci-archive or docker-archive (absolute path) into the node
  apiserver start [--name N] --index I[,J...] [--with-controllers] [--api-args "..."]
                                    one more API server (1 to 8), or several at once, on the same etcd, each with objects of its
                                    own; prints the paths of their kubeconfigs, joined by ':'. Index 0 is the cluster's first one.
  apiserver stop|kill [--name N] --index I[,J...]
                                    end them with SIGTERM, or with SIGKILL
  install [PACKAGE...]              install what the cluster needs (and PACKAGEs) from Debian, if it is missing

The name is "belay" unless given. CLUSTER=kind or CLUSTER=existing in the environment make up, down and load-image
use kind, or the current context of your kubeconfig. BELAY_CACHE and BELAY_STATE say where built files and clusters live.
`

// errUsage marks a command line that cannot be understood: exit 2, as opposed to 1 for whatever went wrong.
var errUsage = errors.New("see --help")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A reader of our output that goes away (`up | head`) must not end us half-way. Notify and not Ignore, because
	// an ignored signal would stay ignored in every program that we start.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(os.Stderr, usage)
	case errors.Is(err, errUsage):
		say("%v", err)
		os.Exit(2)
	default:
		say("%v", err)
		os.Exit(1)
	}
}

// run carries out one command line.
func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return flag.ErrHelp
	}
	command, rest := args[0], args[1:]
	if command == "apiserver" && len(rest) > 0 {
		command, rest = command+" "+rest[0], rest[1:]
	}

	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(nowhere{})
	name := flags.String("name", "", "")
	noNode := flags.Bool("no-node", false, "")
	shortWaits := flags.Bool("short-waits", false, "")
	as := flags.String("as", "", "")
	index := flags.String("index", "", "")
	more := flags.String("apiservers", "", "")
	withControllers := flags.Bool("with-controllers", false, "")
	apiArgs := flags.String("api-args", "", "")
	if err := flags.Parse(rest); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%s: %v (%w)", command, err, errUsage)
	}
	if err := onlyFlags(flags, command); err != nil {
		return err
	}
	operands := flags.Args()
	if wanted := map[string]int{"load-image": 1, "install": len(operands)}[command]; len(operands) != wanted {
		return fmt.Errorf("%s takes %d arguments, not %q (%w)", command, wanted, operands, errUsage)
	}
	chosen := *name
	if chosen == "" {
		chosen = "belay"
	}
	if err := checkName(chosen); err != nil {
		return fmt.Errorf("%v (%w)", err, errUsage)
	}
	if err := checkMachine(os.Getenv("CLUSTER"), runtime.GOOS, runtime.GOARCH); err != nil {
		return err
	}

	var indexes []int
	var err error
	if strings.HasPrefix(command, "apiserver ") {
		indexes, err = parseIndexes(*index, 0)
	} else if *more != "" {
		indexes, err = parseIndexes(*more, 1)
		if err == nil && !isEmbedded(os.Getenv("CLUSTER")) {
			err = fmt.Errorf("only the embedded cluster has more API servers (%w)", errUsage)
		}
	}
	if err != nil {
		return err
	}

	switch command {
	case "help", "-h", "--help", "-help":
		return flag.ErrHelp
	case "build":
		_, err := build(ctx)
		return err
	case "install":
		return install(ctx, append(nodePackages, operands...))
	case "up":
		return chooseBackend(chosen).up(ctx, upOptions{withNode: !*noNode, shortWaits: *shortWaits, apiServers: indexes})
	case "down":
		return chooseBackend(chosen).down(ctx)
	case "load-image":
		return chooseBackend(chosen).loadImage(ctx, operands[0], *as)
	case "where":
		folder, err := chooseBackend(chosen).folder()
		if err == nil {
			fmt.Println(folder)
		}
		return err
	case "status":
		return status(ctx, *name)
	case "apiserver start":
		return startAPIServers(ctx, chosen, indexes, *withControllers, *apiArgs)
	case "apiserver stop":
		return endAPIServers(ctx, chosen, indexes, syscall.SIGTERM)
	case "apiserver kill":
		return endAPIServers(ctx, chosen, indexes, syscall.SIGKILL)
	default:
		return fmt.Errorf("there is no command %q (%w)", command, errUsage)
	}
}

// onlyFlags refuses a flag that belongs to another command, rather than ignoring it.
func onlyFlags(flags *flag.FlagSet, command string) error {
	allowed := map[string][]string{
		"up":              {"name", "no-node", "short-waits", "apiservers"},
		"down":            {"name"},
		"status":          {"name"},
		"where":           {"name"},
		"load-image":      {"name", "as"},
		"apiserver start": {"name", "index", "with-controllers", "api-args"},
		"apiserver stop":  {"name", "index"},
		"apiserver kill":  {"name", "index"},
	}[command]
	var wrong error
	flags.Visit(func(set *flag.Flag) {
		for _, name := range allowed {
			if set.Name == name {
				return
			}
		}
		wrong = fmt.Errorf("%s has no flag --%s (%w)", command, set.Name, errUsage)
	})
	return wrong
}

// say tells the person in front of the terminal something. Only results go to standard output.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "cluster: "+format+"\n", args...)
}

// nowhere swallows the flag package's own messages: ours say the same in one line.
type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
