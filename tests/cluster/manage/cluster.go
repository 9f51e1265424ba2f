package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// cluster is one embedded cluster: a name, the folder that holds all it owns, and the slot that its numbers come from.
type cluster struct {
	Name string `json:"name"`
	Slot slot   `json:"slot"`
	// Bin is the folder of the programs that it was brought up with.
	Bin string `json:"bin"`
	// Boot is the machine's boot that it was made in. None outlives it.
	Boot string `json:"boot"`
	// ShortWaits is for tests: controllers that wait as long as upstream's, out of consideration for large clusters, wait less.
	ShortWaits bool `json:"shortWaits,omitempty"`

	dir string
}

// slot numbers the clusters of a machine. Every port, address and interface name is derived from it, so that clusters
// of different names never meet.
type slot int

const (
	slots = 16
	// apiServers is how many API servers one cluster can have: the first, and eight more.
	apiServers = 9
	// firstPort lies below the range from which Linux takes the ports of outgoing connections (32768 and up).
	firstPort = 21000
)

func (s slot) port(offset int) int           { return firstPort + 100*int(s) + offset }
func (s slot) apiServerPort(index int) int   { return s.port(index) }
func (s slot) controllersPort(index int) int { return s.port(10 + index) }
func (s slot) schedulerPort() int            { return s.port(20) }
func (s slot) kubeletPort() int              { return s.port(21) }
func (s slot) kubeletHealthPort() int        { return s.port(22) }
func (s slot) ports() (all []int) {
	for index := 0; index < apiServers; index++ {
		all = append(all, s.apiServerPort(index), s.controllersPort(index))
	}
	return append(all, s.schedulerPort(), s.kubeletPort(), s.kubeletHealthPort())
}

// bridge is the name of the interface that carries all addresses of the cluster.
func (s slot) bridge() string { return fmt.Sprintf("belay%d", int(s)) }

// serviceCIDR is the range of Service addresses; its first one is serviceIP, the API server as pods see it.
func (s slot) serviceCIDR() string { return fmt.Sprintf("10.213.%d.0/20", 16*int(s)) }
func (s slot) serviceIP() string   { return fmt.Sprintf("10.213.%d.1", 16*int(s)) }

// podCIDR is the range of pod addresses; its first one is nodeIP, the gateway of the pods and the address of the node.
func (s slot) podCIDR() string { return fmt.Sprintf("10.214.%d.0/24", int(s)) }
func (s slot) nodeIP() string  { return fmt.Sprintf("10.214.%d.1", int(s)) }

// inTheWay says why a slot cannot be used on this machine, or "" if it can.
func (s slot) inTheWay(routes string) string {
	if _, err := net.InterfaceByName(s.bridge()); err == nil {
		return "interface " + s.bridge() + " exists"
	}
	for _, cidr := range []string{s.serviceCIDR(), s.podCIDR()} {
		if route := overlapping(routes, cidr); route != "" {
			return fmt.Sprintf("%s overlaps the route to %s", cidr, route)
		}
	}
	for _, port := range s.ports() {
		if !portFree("0.0.0.0", port) {
			return fmt.Sprintf("port %d is taken", port)
		}
	}
	return ""
}

// overlapping finds a route (in the format of /proc/net/route) that shares addresses with cidr. Default routes don't
// count.
func overlapping(routes, cidr string) string {
	_, wanted, err := net.ParseCIDR(cidr)
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(routes, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 8 || fields[7] == "00000000" {
			continue
		}
		destination, err1 := littleEndian(fields[1])
		mask, err2 := littleEndian(fields[7])
		if err1 != nil || err2 != nil {
			continue // the heading
		}
		route := net.IPNet{IP: destination, Mask: net.IPMask(mask)}
		if route.Contains(wanted.IP) || wanted.Contains(route.IP) {
			return route.String()
		}
	}
	return ""
}

// littleEndian reads an address as /proc/net/route writes it.
func littleEndian(hex string) (net.IP, error) {
	var a, b, c, d byte
	if _, err := fmt.Sscanf(hex, "%02X%02X%02X%02X", &d, &c, &b, &a); err != nil {
		return nil, err
	}
	return net.IP{a, b, c, d}, nil
}

func portFree(address string, port int) bool {
	listener, err := net.Listen("tcp4", fmt.Sprintf("%s:%d", address, port))
	if err != nil {
		return false
	}
	listener.Close()
	return true
}

var validName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,18}[a-z0-9])?$`)

func checkName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%q cannot be a cluster's name: take 1 to 20 lower case letters, digits and dashes", name)
	}
	return nil
}

// stateRoot is the folder that holds a folder per cluster. Not in /run, which on most machines is small, in memory, and
// lets nothing be executed: images and etcd are in here.
func stateRoot() string {
	if root := os.Getenv("BELAY_STATE"); root != "" {
		return filepath.Clean(root)
	}
	return "/var/lib/belay"
}

// at refers to a cluster by name, without looking whether it exists.
func at(name string) *cluster {
	return &cluster{Name: name, dir: filepath.Join(stateRoot(), name)}
}

// path names a file of the cluster.
func (c *cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

func (c *cluster) program(name string) string  { return filepath.Join(c.Bin, name) }
func (c *cluster) log(component string) string { return c.path("logs", component+".log") }
func (c *cluster) nodeName() string            { return c.Name + "-node" }
func (c *cluster) comment() string             { return "belay:" + c.Name }
func (c *cluster) containerdSocket() string    { return c.path("containerd.sock") }
func (c *cluster) etcdSocket() string          { return c.path("etcd", "etcd.sock") }
func (c *cluster) server(index int) string {
	return fmt.Sprintf("https://%s:%d", c.Slot.serviceIP(), c.Slot.apiServerPort(index))
}

// kubeconfig is the administrator's kubeconfig for one of the API servers.
func (c *cluster) kubeconfig(index int) string {
	if index == 0 {
		return c.path("admin.kubeconfig")
	}
	return c.path(fmt.Sprintf("admin-%d.kubeconfig", index))
}

// load reads what `up` has recorded about a cluster; fs.ErrNotExist if there is none.
func load(name string) (*cluster, error) {
	c := at(name)
	data, err := os.ReadFile(c.path("cluster.json"))
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, c); err != nil {
		return c, fmt.Errorf("%s cannot be read: %w", c.path("cluster.json"), err)
	}
	return c, nil
}

// running loads a cluster for a command that needs it up.
func running(name string) (*cluster, error) {
	c, err := load(name)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && c.keeper() == 0) {
		if err := c.checkNamesake(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("no cluster named %q is up; bring it up with: up --name %s", name, name)
	}
	return c, err
}

// checkNamesake refuses to work on a cluster while another one of the same name runs from another folder: bridge, packet
// filter rules and control groups are found by the name alone, so the one would take them away from the other.
func (c *cluster) checkNamesake() error {
	if c.keeper() != 0 {
		return nil
	}
	for _, args := range keepers() {
		if filepath.Base(args[2]) == c.Name {
			return fmt.Errorf("cluster %s is up in %s, not in %s; set BELAY_STATE=%s to work with it, or take another --name",
				c.Name, args[2], c.dir, filepath.Dir(args[2]))
		}
	}
	return nil
}

// bootID tells one boot of the machine from another.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// claim takes the first slot that is free for a new cluster and records it, before anything else is made: whatever
// happens afterwards, `down` knows what to look for.
func (c *cluster) claim() error {
	root := stateRoot()
	unlock, err := lockFolder(root, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	taken := map[slot]string{}
	for _, name := range clusterNames(root) {
		if other, err := load(name); err == nil {
			taken[other.Slot] = other.Name
		}
	}
	routes, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return err
	}
	var reasons []string
	for candidate := slot(0); candidate < slots; candidate++ {
		reason := candidate.inTheWay(string(routes))
		if owner := taken[candidate]; owner != "" {
			reason = "cluster " + owner
		}
		if reason == "" {
			c.Slot, c.Boot = candidate, bootID()
			return c.save()
		}
		reasons = append(reasons, reason)
	}
	return fmt.Errorf("none of the %d sets of ports and addresses is free (%s); take a cluster down, or free a port",
		slots, strings.Join(reasons, "; "))
}

func (c *cluster) save() error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return writeFile(c.path("cluster.json"), append(data, '\n'), 0o644)
}

// clusterNames lists the folders under root, whether their cluster is complete or not.
func clusterNames(root string) (names []string) {
	entries, _ := os.ReadDir(root)
	for _, entry := range entries {
		if entry.IsDir() && checkName(entry.Name()) == nil {
			names = append(names, entry.Name())
		}
	}
	return names
}

// writeEnv writes what a shell or a test needs to work with the cluster: `. /var/lib/belay/NAME/env`.
func (c *cluster) writeEnv() error {
	lines := []string{
		"KUBECONFIG=" + c.kubeconfig(0),
		"BELAY_CLUSTER_NAME=" + c.Name,
		"BELAY_CLUSTER_DIR=" + c.dir,
		"BELAY_CLUSTER_BIN=" + c.Bin,
		"BELAY_CLUSTER_SERVER=" + c.server(0),
		"BELAY_CLUSTER_NODE=" + c.nodeName(),
		"BELAY_CLUSTER_CONTAINERD=" + c.containerdSocket(),
		fmt.Sprintf("BELAY_CLUSTER_API_PORTS=%d-%d", c.Slot.apiServerPort(0), c.Slot.apiServerPort(apiServers-1)),
		"PATH=" + c.Bin + `:"$PATH"`,
	}
	return writeFile(c.path("env"), []byte("export "+strings.Join(lines, "\nexport ")+"\n"), 0o644)
}

// writeFile replaces a file in one step, so that nobody ever reads half of it.
func writeFile(path string, data []byte, mode os.FileMode) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, mode); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// lockFolder creates a folder and locks it (syscall.LOCK_EX or LOCK_SH) until the returned function is called or this
// process ends. Locking the folder itself leaves no lock file behind that nobody dares to remove.
func lockFolder(dir string, how int) (unlock func(), err error) {
	const patience = 3 * time.Minute
	started, told := time.Now(), false
	for {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("cannot make %s: %w", dir, err)
		}
		file, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed by whoever had it locked
		}
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
		if err == nil && sameFile(file, dir) {
			return func() { file.Close() }, nil
		}
		file.Close()
		if err == nil {
			continue // the folder was removed, and perhaps made again, while we took the lock
		}
		if time.Since(started) > patience {
			return nil, fmt.Errorf("another command has been working in %s for %s; wait for it or end it", dir, patience)
		}
		if !told && time.Since(started) > time.Second {
			say("waiting for another command that works in %s", dir)
			told = true
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// sameFile says whether the open file is still the one that the path leads to.
func sameFile(file *os.File, path string) bool {
	opened, err1 := file.Stat()
	present, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(opened, present)
}
