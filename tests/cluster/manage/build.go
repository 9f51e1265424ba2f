package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// target is one executable to build.
type target struct {
	name    string
	module  string // folder of the module, relative to tests/cluster
	pkg     string
	ldflags string
	links   []string // further names of the same file
	env     []string
}

// kubernetesVersion must be the one that go.mod requires; a test compares them.
const kubernetesVersion = "v1.35.4"

// targets are all programs that a cluster and its tests need. Strip flags and versions concern the linker alone: the
// compiled packages in Go's build cache are shared with any other build of these modules.
var targets = []target{
	{
		name: "kube", module: ".", pkg: ".",
		// Without these the server calls itself v0.0.0, and Helm's checks of the cluster's version go wrong.
		ldflags: versionFlags("k8s.io/component-base/version") + versionFlags("k8s.io/client-go/pkg/version"),
		links:   []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"},
	},
	{
		name: "helm3", module: ".", pkg: "helm.sh/helm/v3/cmd/helm",
		ldflags: " -X helm.sh/helm/v3/internal/version.version=v3.20.2" +
			" -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=35 -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=35",
	},
	{
		name: "helm4", module: ".", pkg: "helm.sh/helm/v4/cmd/helm",
		ldflags: " -X helm.sh/helm/v4/internal/version.version=v4.1.4",
	},
	{
		// Runs in an empty image, so it must not need a C library.
		name: "belay-init", module: "manage", pkg: "./init", env: []string{"CGO_ENABLED=0"},
	},
}

func versionFlags(pkg string) string {
	return fmt.Sprintf(" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=35 -X %[1]s.gitTreeState=clean",
		pkg, kubernetesVersion)
}

// cacheRoot is where built files are kept, outside of any clone.
func cacheRoot() (string, error) {
	if cache := os.Getenv("BELAY_CACHE"); cache != "" {
		return filepath.Abs(cache)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no folder for built files (%v); set BELAY_CACHE", err)
	}
	return filepath.Join(cache, "belay"), nil
}

// sources finds tests/cluster: beside the compiled source of this program, or from the working directory.
func sources() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	for _, dir := range []string{filepath.Dir(filepath.Dir(file)), "..", ".", "tests/cluster"} {
		if data, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && bytes.HasPrefix(data, []byte("module belay.dev/tests/cluster\n")) {
			return filepath.Abs(dir)
		}
	}
	return "", fmt.Errorf("tests/cluster is not here; run this as: go -C tests/cluster/manage run . COMMAND")
}

// fingerprint names a build by all that goes into it.
func fingerprint(dir string) (string, error) {
	var files []string
	for _, pattern := range []string{"go.mod", "go.sum", "*.go", "manage/init/*.go"} {
		matches, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return "", err
		}
		files = append(files, matches...)
	}
	sort.Strings(files)
	sum := sha256.New()
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(file), len(data), data)
	}
	for _, t := range targets {
		fmt.Fprintf(sum, "%s %s %s\n", t.name, t.pkg, t.ldflags)
	}
	fmt.Fprintln(sum, runtime.GOOS, runtime.GOARCH)
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// build makes sure that all programs are in the cache, and returns the folder that they are in.
func build(ctx context.Context) (string, error) {
	dir, err := sources()
	if err != nil {
		return "", err
	}
	cache, err := cacheRoot()
	if err != nil {
		return "", err
	}
	hash, err := fingerprint(dir)
	if err != nil {
		return "", err
	}
	bin := filepath.Join(cache, "bin", hash)
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}

	if err := checkGo(ctx, dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(bin), 0o755); err != nil {
		return "", fmt.Errorf("cannot make the cache folder (%v); set BELAY_CACHE to a folder that can be written", err)
	}
	unlock, err := lockBuild(ctx, filepath.Join(cache, "bin", ".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(bin); err == nil {
		return bin, nil // somebody else has just built it
	}
	// Go's build cache and the modules take most of this; the result itself is 0.4 GB.
	if err := checkSpace(cache, 5<<30); err != nil {
		return "", err
	}
	// Nobody else builds now: these are of builds that were killed.
	leftovers, _ := filepath.Glob(filepath.Join(cache, "bin", ".building-*"))
	for _, leftover := range leftovers {
		os.RemoveAll(leftover)
	}
	temporary, err := os.MkdirTemp(filepath.Join(cache, "bin"), ".building-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temporary)

	say("building Kubernetes %s, Helm 3 and Helm 4 from their published modules into %s", kubernetesVersion, bin)
	say("the first time takes 8 to 10 minutes on two cores and some 4 GB of Go's caches; later builds about one")
	started := time.Now()
	if err := compile(ctx, dir, temporary, started); err != nil {
		return "", err
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(temporary, bin); err != nil {
		return "", err
	}
	say("built in %s", time.Since(started).Round(time.Second))
	return bin, nil
}

// compile builds every target into a folder.
func compile(ctx context.Context, dir, into string, started time.Time) error {
	progress := newProgress(started)
	defer progress.stop()

	progress.now("fetching modules")
	packages := []string{"list", "-deps"}
	for _, t := range targets {
		if t.module == "." {
			packages = append(packages, t.pkg)
		}
	}
	list, err := goCommand(ctx, dir, nil, progress, packages...)
	if err != nil {
		return err
	}
	progress.total.Store(int64(strings.Count(list, "\n")))

	for _, t := range targets {
		progress.now("building " + t.name)
		args := []string{"build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w" + t.ldflags,
			"-o", filepath.Join(into, t.name), t.pkg}
		if _, err := goCommand(ctx, filepath.Join(dir, t.module), t.env, progress, args...); err != nil {
			return err
		}
		for _, link := range t.links {
			if err := os.Symlink(t.name, filepath.Join(into, link)); err != nil {
				return err
			}
		}
	}
	return nil
}

// goCommand runs the go tool, counts what it does, and returns its output.
func goCommand(ctx context.Context, dir string, env []string, progress *progress, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir = dir
	// A workspace that happens to lie around must not change what is built.
	cmd.Env = append(append(os.Environ(), "GOWORK=off"), env...)
	var output bytes.Buffer
	cmd.Stdout = &output
	messages, err := cmd.StderrPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("cannot run go: %w", err)
	}
	complaints := progress.follow(messages)
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("interrupted; what was compiled is kept, the next build goes on from there")
		}
		if strings.Contains(complaints, "no space left on device") {
			return "", fmt.Errorf("the disk is full; free some 5 GB, or set BELAY_CACHE, GOCACHE and GOMODCACHE to another disk")
		}
		return "", fmt.Errorf("go %s failed (%v):\n%s", args[0], err, complaints)
	}
	return output.String(), nil
}

// progress tells every 15 seconds how far a build has come.
type progress struct {
	started         time.Time
	phase           atomic.Value
	fetched         atomic.Int64
	compiled, total atomic.Int64
	ticker          *time.Ticker
	finished        chan struct{}
}

func newProgress(started time.Time) *progress {
	p := &progress{started: started, ticker: time.NewTicker(15 * time.Second), finished: make(chan struct{})}
	p.phase.Store("")
	go func() {
		for {
			select {
			case <-p.ticker.C:
				say("%s", p)
			case <-p.finished:
				return
			}
		}
	}()
	return p
}

func (p *progress) stop() {
	p.ticker.Stop()
	close(p.finished)
}

// now names what is being done.
func (p *progress) now(phase string) { p.phase.Store(phase) }

func (p *progress) String() string {
	text := fmt.Sprintf("%5s  %s", time.Since(p.started).Round(time.Second), p.phase.Load())
	if total := p.total.Load(); total > 0 {
		return text + fmt.Sprintf(": %d of at most %d packages compiled", p.compiled.Load(), total)
	}
	return text + fmt.Sprintf(": %d fetched", p.fetched.Load())
}

// follow reads what the go tool prints and returns the part that is neither a package name nor a download.
func (p *progress) follow(messages io.Reader) string {
	var complaints []string
	scanner := bufio.NewScanner(messages)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		switch {
		case strings.HasPrefix(line, "go: downloading "):
			p.fetched.Add(1)
		case isPackage(line):
			p.compiled.Add(1)
		default:
			complaints = append(complaints, line)
		}
	}
	if len(complaints) > 40 {
		complaints = complaints[len(complaints)-40:]
	}
	return strings.Join(complaints, "\n")
}

var packagePath = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~/@+-]*$`)

// isPackage recognises the lines in which `go build -v` names what it has compiled.
func isPackage(line string) bool { return packagePath.MatchString(line) }

// lockBuild lets one process at a time build into a cache, however many clones share it.
func lockBuild(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for told := false; ; {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !told {
			say("another build is under way; waiting for it")
			told = true
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("interrupted")
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// checkGo says what to do when Go cannot build the cluster's module.
func checkGo(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	cmd.Dir = dir
	output, err := cmd.Output()
	version := strings.TrimSpace(string(output))
	if _, missing := err.(*exec.Error); missing {
		return fmt.Errorf("go is not in PATH; install Go 1.25 or newer (https://go.dev/dl)")
	}
	if err != nil || !recentEnough(version) {
		if version == "" {
			version = "this Go"
		}
		return fmt.Errorf("%s is too old to build Kubernetes %s; install Go 1.25 or newer (https://go.dev/dl)", version, kubernetesVersion)
	}
	return nil
}

// recentEnough compares what `go env GOVERSION` prints with the oldest Go that will do. Development builds pass.
func recentEnough(version string) bool {
	match := regexp.MustCompile(`^go1\.(\d+)`).FindStringSubmatch(version)
	if match == nil {
		return strings.HasPrefix(version, "devel")
	}
	minor, err := strconv.Atoi(match[1])
	return err == nil && minor >= 25
}
