package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"text/template"
	"time"
)

// validity of all certificates. Clusters live for hours; whoever keeps one longer is not surprised within a year.
const validity = 365 * 24 * time.Hour

// identity is one certificate to make: somebody who talks to the API server, or a server.
type identity struct {
	file         string
	user         string
	organization []string
	names        []string // DNS names of a server
	addresses    []string // IP addresses of a server
}

// identities are all certificates of a cluster. Additional API servers share those of the first.
func (c *cluster) identities() []identity {
	return []identity{
		{file: "admin", user: "admin", organization: []string{"system:masters"}},
		{file: "kube-controller-manager", user: "system:kube-controller-manager", names: []string{"localhost"}, addresses: []string{"127.0.0.1"}},
		{file: "kube-scheduler", user: "system:kube-scheduler", names: []string{"localhost"}, addresses: []string{"127.0.0.1"}},
		{file: "kubelet", user: "system:node:" + c.nodeName(), organization: []string{"system:nodes"},
			names: []string{c.nodeName()}, addresses: []string{c.Slot.nodeIP()}},
		{file: "kube-apiserver", user: "kube-apiserver", organization: []string{"system:masters"},
			names: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
			// The node's address too, for whoever puts a proxy in front that pods can reach.
			addresses: []string{"127.0.0.1", c.Slot.serviceIP(), c.Slot.nodeIP()}},
	}
}

func (c *cluster) certificate(name string) string { return c.path("pki", name+".crt") }
func (c *cluster) key(name string) string         { return c.path("pki", name+".key") }

// makeCertificates makes an authority, a certificate per identity and the key that signs service account tokens. It does
// nothing if it has done so before.
func (c *cluster) makeCertificates() error {
	done := c.path("pki")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	into := c.path("pki.new")
	if err := os.RemoveAll(into); err != nil {
		return err
	}
	if err := os.Mkdir(into, 0o700); err != nil {
		return err
	}

	authorityKey, err := newKey(filepath.Join(into, "ca.key"))
	if err != nil {
		return err
	}
	authority, err := template509(pkix.Name{CommonName: "belay-" + c.Name})
	if err != nil {
		return err
	}
	authority.IsCA = true
	authority.BasicConstraintsValid = true
	authority.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	if err := sign(filepath.Join(into, "ca.crt"), authority, authority, authorityKey, authorityKey); err != nil {
		return err
	}
	for _, who := range c.identities() {
		key, err := newKey(filepath.Join(into, who.file+".key"))
		if err != nil {
			return err
		}
		certificate, err := template509(pkix.Name{CommonName: who.user, Organization: who.organization})
		if err != nil {
			return err
		}
		certificate.KeyUsage = x509.KeyUsageDigitalSignature
		certificate.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
		certificate.DNSNames = who.names
		for _, address := range who.addresses {
			certificate.IPAddresses = append(certificate.IPAddresses, net.ParseIP(address))
		}
		if err := sign(filepath.Join(into, who.file+".crt"), certificate, authority, key, authorityKey); err != nil {
			return err
		}
	}
	if _, err := newKey(filepath.Join(into, "service-accounts.key")); err != nil {
		return err
	}
	return os.Rename(into, done)
}

func newKey(file string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	// The SEC 1 form, because it is the one that every part of Kubernetes reads, also for service accounts.
	data, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: data}), 0o600)
}

func template509(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-5 * time.Minute), // clocks are sometimes set back
		NotAfter:     now.Add(validity),
	}, nil
}

func sign(file string, certificate, authority *x509.Certificate, key, authorityKey *ecdsa.PrivateKey) error {
	data, err := x509.CreateCertificate(rand.Reader, certificate, authority, &key.PublicKey, authorityKey)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: data}), 0o644)
}

var kubeconfigTemplate = template.Must(template.New("kubeconfig").Parse(`apiVersion: v1
kind: Config
clusters:
- name: {{.Name}}
  cluster:
    server: {{.Server}}
    certificate-authority-data: {{.Authority}}
users:
- name: {{.User}}
  user:
    client-certificate-data: {{.Certificate}}
    client-key-data: {{.Key}}
contexts:
- name: {{.Name}}
  context:
    cluster: {{.Name}}
    user: {{.User}}
current-context: {{.Name}}
`))

// writeKubeconfig writes a kubeconfig with everything in it, so that the file can be copied anywhere. It is written anew
// each time: whatever somebody may have put there, it leads to this cluster.
func (c *cluster) writeKubeconfig(file, user string, index int) error {
	encoded := map[string]string{}
	for name, path := range map[string]string{"ca": c.certificate("ca"), "crt": c.certificate(user), "key": c.key(user)} {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		encoded[name] = base64.StdEncoding.EncodeToString(data)
	}
	name := "belay-" + c.Name
	if index > 0 {
		name = fmt.Sprintf("%s-%d", name, index)
	}
	var text bytes.Buffer
	if err := kubeconfigTemplate.Execute(&text, map[string]string{
		"Name": name, "Server": c.server(index), "User": user,
		"Authority": encoded["ca"], "Certificate": encoded["crt"], "Key": encoded["key"],
	}); err != nil {
		return err
	}
	return writeFile(file, text.Bytes(), 0o600)
}

// clientTLS is how this program itself talks to the cluster: as administrator.
func (c *cluster) clientTLS() (*tls.Config, error) {
	authority, err := os.ReadFile(c.certificate("ca"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	pair, err := tls.LoadX509KeyPair(c.certificate("admin"), c.key("admin"))
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}, nil
}
