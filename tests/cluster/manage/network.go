package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// makeNetwork makes the one interface of the cluster: a bridge with the address of the node, and with the first
// Service address, on which the API servers listen. All addresses go with it. It is found by its alias, so even without
// any record `down` knows whose it is.
//
// Forwarding stays as it is on the machine: pods talk to the node and to each other, not to the world.
func (c *cluster) makeNetwork(ctx context.Context) error {
	bridge := c.Slot.bridge()
	if _, err := net.InterfaceByName(bridge); err != nil {
		// A bridge without a hardware address of its own takes that of a port, another one whenever pods come and go.
		hardware := fmt.Sprintf("02:be:1a:00:00:%02x", int(c.Slot))
		if _, err := command(ctx, "", "ip", "link", "add", bridge, "address", hardware, "type", "bridge"); err != nil {
			return fmt.Errorf("cannot make a network bridge: %w", err)
		}
	}
	for _, args := range [][]string{
		{"link", "set", bridge, "alias", c.comment()},
		{"link", "set", bridge, "up"},
		{"address", "replace", c.Slot.nodeIP() + "/24", "dev", bridge},
		{"address", "replace", c.Slot.serviceIP() + "/32", "dev", bridge},
	} {
		if _, err := command(ctx, "", "ip", args...); err != nil {
			return err
		}
	}
	return nil
}

// makeRules lets pods reach the API server under the address that Kubernetes tells them, without a kube-proxy, and lets
// them through a firewall that the machine may have.
func (c *cluster) makeRules(ctx context.Context) error {
	bridge := c.Slot.bridge()
	service := fmt.Sprintf("-d %s/32 -p tcp --dport 443", c.Slot.serviceIP())
	server := fmt.Sprintf("-j DNAT --to-destination %s:%d", c.Slot.serviceIP(), c.Slot.apiServerPort(0))
	return c.setRules(ctx, map[string][]string{
		"nat": {
			"PREROUTING -i " + bridge + " " + service + " %s " + server,
			"OUTPUT " + service + " %s " + server, // pods in the node's own network
		},
		"filter": {
			"INPUT -i " + bridge + " %s -j ACCEPT",
			"FORWARD -i " + bridge + " -o " + bridge + " %s -j ACCEPT",
		},
	})
}

// setRules replaces the cluster's packet filter rules by others, in one step per table. The %s of a rule is where the
// comment goes that says whose it is.
func (c *cluster) setRules(ctx context.Context, wanted map[string][]string) error {
	present, err := command(ctx, "", "iptables-save")
	if err != nil {
		return err
	}
	script := ruleScript(present, c.comment(), wanted)
	if script == "" {
		return nil
	}
	_, err = command(ctx, script, "iptables-restore", "--noflush", "--wait")
	return err
}

// ruleScript is the input for iptables-restore that removes all rules with a comment and inserts others.
func ruleScript(present, comment string, wanted map[string][]string) string {
	lines := map[string][]string{}
	for table, rules := range rulesOf(present, comment) {
		for _, rule := range rules {
			lines[table] = append(lines[table], "-D "+rule)
		}
	}
	for table, rules := range wanted {
		for _, rule := range rules {
			lines[table] = append(lines[table], "-I "+fmt.Sprintf(rule, `-m comment --comment "`+comment+`"`))
		}
	}
	var script strings.Builder
	for _, table := range []string{"nat", "filter"} {
		if len(lines[table]) > 0 {
			fmt.Fprintf(&script, "*%s\n%s\nCOMMIT\n", table, strings.Join(lines[table], "\n"))
		}
	}
	return script.String()
}

// rulesOf picks the rules with a comment out of what iptables-save prints, by table and without the leading -A.
func rulesOf(saved, comment string) map[string][]string {
	found := map[string][]string{}
	table := ""
	for _, line := range strings.Split(saved, "\n") {
		if name, isTable := strings.CutPrefix(line, "*"); isTable {
			table = name
		}
		rule, isRule := strings.CutPrefix(line, "-A ")
		if !isRule {
			continue
		}
		// Quoted or not depends on the version of iptables.
		for _, text := range []string{` --comment "` + comment + `" `, ` --comment ` + comment + ` `} {
			if strings.Contains(rule+" ", text) {
				found[table] = append(found[table], rule)
				break
			}
		}
	}
	return found
}

// removeNetwork removes the bridge, the pods' ends of it, all addresses, and the packet filter rules.
func (c *cluster) removeNetwork(ctx context.Context) error {
	half := "" // the name of a bridge that was made, but not given its alias
	if recorded, err := load(c.Name); err == nil {
		half = recorded.Slot.bridge()
	}
	aliases, _ := filepath.Glob("/sys/class/net/*/ifalias")
	for _, file := range aliases {
		alias, err := os.ReadFile(file)
		bridge, owner := filepath.Base(filepath.Dir(file)), strings.TrimSpace(string(alias))
		if err != nil || owner != c.comment() && (owner != "" || bridge != half) {
			continue
		}
		// The pods' ends go with the pods' namespaces, but the kernel takes its time for that.
		ports, _ := os.ReadDir(filepath.Join(filepath.Dir(file), "brif"))
		for _, port := range ports {
			_, _ = command(ctx, "", "ip", "link", "delete", port.Name())
		}
		if _, err := command(ctx, "", "ip", "link", "delete", bridge); err != nil {
			return err
		}
	}
	if find("iptables-save") == "" {
		return nil // then no rule was ever made
	}
	return c.setRules(ctx, nil)
}
