package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// backend is where a cluster comes from.
type backend interface {
	up(ctx context.Context, options upOptions) error
	down(ctx context.Context) error
	loadImage(ctx context.Context, archive, as string) error
	// folder holds env and kubeconfig once the cluster is up. No two backends ever share one.
	folder() (string, error)
}

// chooseBackend reads CLUSTER.
func chooseBackend(name string) backend {
	kind := os.Getenv("CLUSTER")
	if isEmbedded(kind) {
		return embedded{name}
	}
	switch kind {
	case "kind":
		return inKind{name}
	case "existing":
		return existing{name}
	default:
		return unknown{kind}
	}
}

// isEmbedded says whether CLUSTER, by what it says or by default, asks for the cluster that this program makes itself.
func isEmbedded(kind string) bool { return kind == "" || kind == "embedded" }

// checkMachine refuses the embedded cluster where it cannot run.
func checkMachine(kind, system, architecture string) error {
	if isEmbedded(kind) && (system != "linux" || architecture != "amd64") {
		return fmt.Errorf("the embedded cluster needs Linux on x86-64, and this is %s on %s; set CLUSTER=kind or CLUSTER=existing instead", system, architecture)
	}
	return nil
}

func (e embedded) folder() (string, error) { return at(e.name).dir, nil }

func (e embedded) loadImage(ctx context.Context, archive, as string) error {
	if err := checkRoot(); err != nil {
		return err
	}
	c, err := running(e.name)
	if err != nil {
		return err
	}
	unlock, err := lockFolder(c.dir, syscall.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	return c.loadImage(ctx, archive, as)
}

// inKind uses kind and a Docker engine, where a person has them. It is kept to the few commands that kind documents,
// because the machines that test this project have no Docker engine: nothing here is tested there.
type inKind struct{ name string }

func (k inKind) clusterName() string { return "belay-" + k.name }

func (k inKind) folder() (string, error) { return foreignFolder("kind", k.name) }

func (k inKind) up(ctx context.Context, _ upOptions) error {
	for _, program := range []string{"docker", "kind"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("CLUSTER=kind needs %s, which is not in PATH; install it, or leave CLUSTER unset", program)
		}
	}
	folder, bin, err := foreign(ctx, k)
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(folder, "admin.kubeconfig")
	clusters, err := exec.CommandContext(ctx, "kind", "get", "clusters").Output()
	if err != nil {
		return fmt.Errorf("kind get clusters: %w", err)
	}
	args := []string{"create", "cluster", "--name", k.clusterName(), "--kubeconfig", kubeconfig, "--wait", "3m"}
	for _, present := range strings.Fields(string(clusters)) {
		if present == k.clusterName() {
			args = []string{"export", "kubeconfig", "--name", k.clusterName(), "--kubeconfig", kubeconfig}
		}
	}
	if err := visibly(ctx, "kind", args...); err != nil {
		return err
	}
	return announce(k.name, folder, bin)
}

func (k inKind) down(ctx context.Context) error {
	if err := visibly(ctx, "kind", "delete", "cluster", "--name", k.clusterName()); err != nil {
		return err
	}
	return removeForeign(k)
}

func (k inKind) loadImage(ctx context.Context, archive, _ string) error {
	return visibly(ctx, "kind", "load", "image-archive", archive, "--name", k.clusterName())
}

// existing uses the cluster of the current context. It is chosen by CLUSTER=existing alone, never by default, and says
// which one it is.
type existing struct{ name string }

func (e existing) folder() (string, error) { return foreignFolder("existing", e.name) }

func (e existing) up(ctx context.Context, _ upOptions) error {
	folder, bin, err := foreign(ctx, e)
	if err != nil {
		return err
	}
	kubectl := filepath.Join(bin, "kubectl")
	const format = `{.current-context} {.clusters[0].cluster.server}`
	which, err := exec.CommandContext(ctx, kubectl, "config", "view", "--minify", "-o", "jsonpath="+format).Output()
	if err != nil {
		return errors.New("CLUSTER=existing needs a kubeconfig with a current context, and there is none; set KUBECONFIG, or leave CLUSTER unset")
	}
	context, server, _ := strings.Cut(string(which), " ")
	say("using the existing cluster of context %q at %s", context, server)
	// A copy of this one context: whoever switches contexts meanwhile does not switch the cluster under our feet.
	copied, err := exec.CommandContext(ctx, kubectl, "config", "view", "--minify", "--flatten", "--raw").Output()
	if err != nil {
		return fmt.Errorf("kubectl config view: %w", err)
	}
	if err := writeFile(filepath.Join(folder, "admin.kubeconfig"), copied, 0o600); err != nil {
		return err
	}
	if output, err := exec.CommandContext(ctx, kubectl, "--kubeconfig", filepath.Join(folder, "admin.kubeconfig"),
		"get", "--raw", "/readyz").CombinedOutput(); err != nil {
		return fmt.Errorf("the cluster at %s does not answer: %s", server, strings.TrimSpace(string(output)))
	}
	return announce(e.name, folder, bin)
}

func (e existing) down(context.Context) error {
	say("an existing cluster is left as it is")
	return removeForeign(e)
}

func (e existing) loadImage(_ context.Context, archive, _ string) error {
	return fmt.Errorf("an image cannot be loaded into an existing cluster from here; push %s to a registry that it can pull from, and name it in image.repository and image.tag", archive)
}

// unknown refuses a CLUSTER that means nothing.
type unknown struct{ kind string }

func (u unknown) refuse() error {
	return fmt.Errorf("CLUSTER=%s is not known; take kind or existing, or leave it unset (%w)", u.kind, errUsage)
}
func (u unknown) up(context.Context, upOptions) error             { return u.refuse() }
func (u unknown) down(context.Context) error                      { return u.refuse() }
func (u unknown) loadImage(context.Context, string, string) error { return u.refuse() }
func (u unknown) folder() (string, error)                         { return "", u.refuse() }

// foreignFolder holds kubeconfig and env for a cluster that is not ours. No root is needed for those, so by default it is in
// the cache. The dot cannot be in the name of an embedded cluster: none of those ever finds the kubeconfig of somebody's
// cluster in its own folder.
func foreignFolder(kind, name string) (string, error) {
	if os.Getenv("BELAY_STATE") != "" {
		return filepath.Join(stateRoot(), name+"."+kind), nil
	}
	cache, err := cacheRoot()
	return filepath.Join(cache, kind, name), err
}

// foreign prepares that folder, and the programs: the tests use the same kubectl and Helm everywhere.
func foreign(ctx context.Context, where backend) (folder, bin string, err error) {
	if folder, err = where.folder(); err != nil {
		return "", "", err
	}
	if bin, err = build(ctx); err != nil {
		return "", "", err
	}
	return folder, bin, os.MkdirAll(folder, 0o755)
}

func removeForeign(where backend) error {
	folder, err := where.folder()
	if err != nil {
		return err
	}
	return os.RemoveAll(folder)
}

// announce ends `up` for a cluster that is not ours, in the same way as for one that is.
func announce(name, folder, bin string) error {
	kubeconfig := filepath.Join(folder, "admin.kubeconfig")
	env := fmt.Sprintf("export KUBECONFIG=%s\nexport BELAY_CLUSTER_NAME=%s\nexport BELAY_CLUSTER_DIR=%s\nexport BELAY_CLUSTER_BIN=%s\nexport PATH=%s:\"$PATH\"\n",
		kubeconfig, name, folder, bin, bin)
	if err := writeFile(filepath.Join(folder, "env"), []byte(env), 0o644); err != nil {
		return err
	}
	say("for kubectl, helm3 and helm4 of this cluster: . %s", filepath.Join(folder, "env"))
	fmt.Printf("export KUBECONFIG=%s\n", kubeconfig)
	return nil
}

// visibly runs a program whose own messages are worth reading.
func visibly(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}
