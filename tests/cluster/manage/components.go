package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

// etcd listens on a socket in the cluster's folder: no port to be taken, and no other user can reach it.
func (c *cluster) etcd() component {
	socket := "unix://" + c.etcdSocket()
	// It insists on HOST:PORT for its peers, of which there are none, and makes a file of that name where it runs.
	const peer = "unix://etcd-peer:1"
	return component{
		name: "etcd",
		command: []string{c.program("etcd"),
			"--name=" + c.Name,
			"--data-dir=" + c.path("etcd", "data"),
			"--listen-client-urls=" + socket,
			"--advertise-client-urls=unix://etcd:1",
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=" + c.Name + "=" + peer,
			// Nobody needs these objects after a power cut, and every write is several times faster.
			"--unsafe-no-fsync",
			"--quota-backend-bytes=8589934592",
			"--log-level=warn",
		},
		healthy: func(ctx context.Context) error {
			dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", c.etcdSocket())
			}
			return get(ctx, &http.Transport{DialContext: dial}, "http://etcd/health", nil)
		},
	}
}

// numbered names a component of an additional API server.
func numbered(name string, index int) string {
	if index == 0 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, index)
}

// apiServer is one of the API servers. All share etcd, certificates and address; each has a port and, by its prefix in
// etcd, objects of its own.
func (c *cluster) apiServer(index int, extra ...string) component {
	prefix := "/registry"
	if index > 0 {
		prefix = fmt.Sprintf("/registry-%d", index)
	}
	command := []string{c.program("kube-apiserver"),
		"--etcd-servers=unix://" + c.etcdSocket(),
		"--etcd-prefix=" + prefix,
		"--bind-address=" + c.Slot.serviceIP(),
		fmt.Sprintf("--secure-port=%d", c.Slot.apiServerPort(index)),
		"--service-cluster-ip-range=" + c.Slot.serviceCIDR(),
		"--client-ca-file=" + c.certificate("ca"),
		"--tls-cert-file=" + c.certificate("kube-apiserver"),
		"--tls-private-key-file=" + c.key("kube-apiserver"),
		"--kubelet-certificate-authority=" + c.certificate("ca"),
		"--kubelet-client-certificate=" + c.certificate("kube-apiserver"),
		"--kubelet-client-key=" + c.key("kube-apiserver"),
		// The node's name is in no DNS: without this, logs and exec would look there.
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.key("service-accounts"),
		"--service-account-signing-key-file=" + c.key("service-accounts"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		// Webhooks and aggregated APIs are reached at their pods: there is no kube-proxy behind Service addresses.
		"--enable-aggregator-routing=true",
		"--profiling=false",
	}
	return component{
		name:    numbered("kube-apiserver", index),
		command: append(command, extra...),
		listens: []string{fmt.Sprintf("%s:%d", c.Slot.serviceIP(), c.Slot.apiServerPort(index))},
		healthy: func(ctx context.Context) error { return c.get(ctx, index, "/readyz", nil) },
	}
}

// shortWaits tells main.go to shorten those waits of the controllers for which there is no flag.
const shortWaits = "BELAY_SHORT_WAITS"

// controllerManager runs the controllers for one of the API servers.
func (c *cluster) controllerManager(index int) component {
	name := numbered("kube-controller-manager", index)
	var env, short []string
	if c.ShortWaits {
		env = []string{shortWaits + "=1"}
		short = []string{
			"--horizontal-pod-autoscaler-sync-period=1s", // instead of 15
			// A namespace that is deleted costs a call per kind that there is; at 20 a second, the default, that takes seconds.
			"--kube-api-qps=500",
			"--kube-api-burst=1000",
		}
	}
	return component{
		name: name,
		env:  env,
		command: append([]string{c.program("kube-controller-manager"),
			"--kubeconfig=" + c.path(name+".kubeconfig"),
			"--leader-elect=false", // there is only one, and an election takes time
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", c.Slot.controllersPort(index)),
			"--tls-cert-file=" + c.certificate("kube-controller-manager"),
			"--tls-private-key-file=" + c.key("kube-controller-manager"),
			"--root-ca-file=" + c.certificate("ca"),
			"--service-account-private-key-file=" + c.key("service-accounts"),
			"--use-service-account-credentials=true",
			"--cluster-signing-cert-file=" + c.certificate("ca"),
			"--cluster-signing-key-file=" + c.key("ca"),
			"--profiling=false",
		}, short...),
		listens: []string{fmt.Sprintf("127.0.0.1:%d", c.Slot.controllersPort(index))},
		healthy: func(ctx context.Context) error {
			return c.getTLS(ctx, fmt.Sprintf("https://127.0.0.1:%d/healthz", c.Slot.controllersPort(index)), nil)
		},
	}
}

func (c *cluster) scheduler() component {
	return component{
		name: "kube-scheduler",
		command: []string{c.program("kube-scheduler"),
			"--kubeconfig=" + c.path("kube-scheduler.kubeconfig"),
			"--leader-elect=false",
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", c.Slot.schedulerPort()),
			"--tls-cert-file=" + c.certificate("kube-scheduler"),
			"--tls-private-key-file=" + c.key("kube-scheduler"),
			"--profiling=false",
		},
		listens: []string{fmt.Sprintf("127.0.0.1:%d", c.Slot.schedulerPort())},
		healthy: func(ctx context.Context) error {
			return c.getTLS(ctx, fmt.Sprintf("https://127.0.0.1:%d/healthz", c.Slot.schedulerPort()), nil)
		},
	}
}

var containerdConfig = template.Must(template.New("containerd").Parse(`version = 2
root = "{{.Dir}}/containerd/root"
state = "{{.Dir}}/containerd/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "{{.Socket}}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Dir}}/containerd/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.SandboxImage}}"
  # In a container or a small virtual machine even root may not lower a process's score.
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  # Its profile would be loaded into the machine's kernel, where nobody would remove it.
  disable_apparmor = true
  # Not in /run/netns, where they would be seen by everybody.
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{{.Plugins}}"
    conf_dir = "{{.Dir}}/cni"

  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "{{.Dir}}/containerd/runc"
      SystemdCgroup = false
`))

// The bridge is ours and has its address already: a plugin that had to make a gateway of it would also turn on
// forwarding for the whole machine.
var networkConfig = template.Must(template.New("cni").Parse(`{
  "cniVersion": "1.0.0",
  "name": "{{.Bridge}}",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "{{.Bridge}}",
      "ipam": {
        "type": "host-local",
        "dataDir": "{{.Dir}}/cni/leases",
        "ranges": [[{"subnet": "{{.PodCIDR}}", "gateway": "{{.NodeIP}}"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    }
  ]
}
`))

var kubeletConfig = template.Must(template.New("kubelet").Parse(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {{.NodeIP}}
port: {{.KubeletPort}}
healthzBindAddress: 127.0.0.1
healthzPort: {{.KubeletHealthPort}}
tlsCertFile: {{.Dir}}/pki/kubelet.crt
tlsPrivateKeyFile: {{.Dir}}/pki/kubelet.key
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: {{.Dir}}/pki/ca.crt}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://{{.Socket}}
cgroupDriver: cgroupfs
cgroupRoot: /{{.Cgroup}}
failCgroupV1: false
failSwapOn: false
# It would make chains of its own, which nobody would remove.
makeIPTablesUtilChains: false
podLogsDir: {{.Dir}}/logs/pods
volumePluginDir: {{.Dir}}/kubelet/volume-plugins
# Nobody answers there. Without it every pod would get a warning event.
clusterDNS: ["{{.DNS}}"]
clusterDomain: cluster.local
# Images that were loaded by hand cannot be pulled again: a full disk must not remove them, nor evict pods.
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
evictionHard: {memory.available: 10Mi}
`))

// writeNodeConfig writes the configuration of containerd, of the network plugins and of the kubelet.
func (c *cluster) writeNodeConfig() error {
	values := map[string]any{
		"Dir": c.dir, "Socket": c.containerdSocket(), "SandboxImage": sandboxImage,
		"Plugins": filepath.Dir(find("cni/bridge")), "Bridge": c.Slot.bridge(), "PodCIDR": c.Slot.podCIDR(),
		"NodeIP": c.Slot.nodeIP(), "KubeletPort": c.Slot.kubeletPort(), "KubeletHealthPort": c.Slot.kubeletHealthPort(),
		"Cgroup": c.cgroup(), "DNS": strings.TrimSuffix(c.Slot.serviceIP(), "1") + "10",
	}
	for path, text := range map[string]*template.Template{
		c.path("containerd.toml"):          containerdConfig,
		c.path("cni", "10-belay.conflist"): networkConfig,
		c.path("kubelet.yaml"):             kubeletConfig,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		var data bytes.Buffer
		if err := text.Execute(&data, values); err != nil {
			return err
		}
		if err := writeFile(path, data.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) containerd() component {
	return component{
		name:    "containerd",
		command: []string{find("containerd"), "--config", c.path("containerd.toml"), "--log-level", "info"},
		healthy: func(ctx context.Context) error {
			_, err := c.ctr(ctx, "version")
			return err
		},
	}
}

func (c *cluster) kubelet() component {
	return component{
		name: "kubelet",
		command: []string{c.program("kubelet"),
			"--config=" + c.path("kubelet.yaml"),
			"--kubeconfig=" + c.path("kubelet.kubeconfig"),
			"--hostname-override=" + c.nodeName(),
			"--node-ip=" + c.Slot.nodeIP(),
			"--root-dir=" + c.path("kubelet"),
			"--cert-dir=" + c.path("kubelet", "pki"),
		},
		listens: []string{
			fmt.Sprintf("%s:%d", c.Slot.nodeIP(), c.Slot.kubeletPort()),
			fmt.Sprintf("127.0.0.1:%d", c.Slot.kubeletHealthPort()),
		},
		healthy: func(ctx context.Context) error {
			url := fmt.Sprintf("http://127.0.0.1:%d/healthz", c.Slot.kubeletHealthPort())
			return get(ctx, &http.Transport{}, url, nil)
		},
	}
}

// nodeReady asks the API server whether pods can run.
func (c *cluster) nodeReady(ctx context.Context) error {
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := c.get(ctx, 0, "/api/v1/nodes/"+c.nodeName(), &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type != "Ready" {
			continue
		}
		if condition.Status == "True" {
			return nil
		}
		return fmt.Errorf("the node is not Ready: %s", condition.Message)
	}
	return fmt.Errorf("the node has not reported yet")
}

// controllersWork asks whether pods can be made: each namespace first needs what the controllers put into it.
func (c *cluster) controllersWork(index int) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := c.get(ctx, index, "/api/v1/namespaces/default/serviceaccounts/default", nil); err != nil {
			return err
		}
		return c.get(ctx, index, "/api/v1/namespaces/default/configmaps/kube-root-ca.crt", nil)
	}
}

// get reads a path from one of the API servers, as administrator.
func (c *cluster) get(ctx context.Context, index int, path string, into any) error {
	return c.getTLS(ctx, c.server(index)+path, into)
}

func (c *cluster) getTLS(ctx context.Context, url string, into any) error {
	config, err := c.clientTLS()
	if err != nil {
		return err
	}
	return get(ctx, &http.Transport{TLSClientConfig: config}, url, into)
}

// get reads a URL, and decodes the answer if into is not nil. Anything but 200 is an error.
func get(ctx context.Context, transport *http.Transport, url string, into any) error {
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: transport, Timeout: 5 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 300))
		return fmt.Errorf("%s answers %d: %s", url, response.StatusCode, strings.TrimSpace(string(text)))
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}
