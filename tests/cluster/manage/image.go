package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// sandboxImage keeps the namespaces of a pod open. It is made here, because nothing may have to be pulled.
const sandboxImage = "localhost/belay-init:1"

// ociImage packs one static executable into an image, in the layout that `ctr images import` reads.
func ociImage(name string, program []byte) ([]byte, error) {
	layer, err := archive(entry{"belay-init", program, 0o755})
	if err != nil {
		return nil, err
	}
	blobs := []entry{}
	add := func(mediaType string, data []byte) map[string]any {
		digest := digestOf(data)
		blobs = append(blobs, entry{"blobs/sha256/" + digest, data, 0o644})
		return map[string]any{"mediaType": mediaType, "digest": "sha256:" + digest, "size": len(data)}
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/belay-init"}, "User": "65535:65535"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digestOf(layer)}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": add("application/vnd.oci.image.config.v1+json", config),
		"layers": []any{add("application/vnd.oci.image.layer.v1.tar", layer)},
	})
	if err != nil {
		return nil, err
	}
	descriptor := add("application/vnd.oci.image.manifest.v1+json", manifest)
	descriptor["annotations"] = map[string]string{"io.containerd.image.name": name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{descriptor}})
	if err != nil {
		return nil, err
	}
	layout := entry{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644}
	return archive(append(blobs, layout, entry{"index.json", index, 0o644})...)
}

// entry is one file of an archive.
type entry struct {
	name string
	data []byte
	mode int64
}

func archive(entries ...entry) ([]byte, error) {
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, file := range entries {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: file.name, Size: int64(len(file.data)), Mode: file.mode}
		if err := writer.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := writer.Write(file.data); err != nil {
			return nil, err
		}
	}
	err := writer.Close()
	return buffer.Bytes(), err
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// ctr talks to the cluster's own containerd, in the namespace that the kubelet uses.
func (c *cluster) ctr(ctx context.Context, args ...string) (string, error) {
	return command(ctx, "", "ctr", append([]string{"--address", c.containerdSocket(), "--namespace", "k8s.io"}, args...)...)
}

// importSandboxImage gives the node the one image without which it can run nothing.
func (c *cluster) importSandboxImage(ctx context.Context) error {
	present, err := c.ctr(ctx, "images", "list", "--quiet")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(present) {
		if name == sandboxImage {
			return nil
		}
	}
	program, err := os.ReadFile(c.program("belay-init"))
	if err != nil {
		return err
	}
	image, err := ociImage(sandboxImage, program)
	if err != nil {
		return err
	}
	file := c.path("tmp", "belay-init.tar")
	if err := os.WriteFile(file, image, 0o644); err != nil {
		return err
	}
	defer os.Remove(file)
	_, err = c.ctr(ctx, "images", "import", file)
	return err
}

// loadImage imports an archive into the node under the names that pods use for it.
func (c *cluster) loadImage(ctx context.Context, file, as string) error {
	if !filepath.IsAbs(file) {
		// `go -C` has changed the working directory: a relative path would mean something else than it says.
		return fmt.Errorf("%s must be an absolute path (%w)", file, errUsage)
	}
	archived, err := os.Open(file)
	if err != nil {
		return err
	}
	names, err := imageNames(archived)
	archived.Close()
	if err != nil {
		return fmt.Errorf("%s is not an image archive: %w", file, err)
	}
	if len(names) == 0 && as == "" {
		return fmt.Errorf("%s holds an image without a name; give it one with --as", file)
	}
	if _, runs := c.recorded("containerd"); !runs {
		return fmt.Errorf("cluster %s has no node; bring it up without --no-node", c.Name)
	}

	arguments := []string{"images", "import"}
	if as != "" {
		arguments = append(arguments, "--index-name", fullName(as))
	}
	if _, err := c.ctr(ctx, append(arguments, file)...); err != nil {
		return err
	}
	// ctr takes names as they are, where the kubelet looks for docker.io/library/NAME.
	for _, name := range names {
		if full := fullName(name); full != name {
			if _, err := c.ctr(ctx, "images", "tag", "--force", name, full); err != nil {
				return err
			}
		}
	}
	if as != "" {
		names = append(names, as)
	}
	say("loaded %s into cluster %s", strings.Join(names, ", "), c.Name)
	return nil
}

// imageNames reads the names of the images in an oci-archive or a docker-archive. Docker's own archives are both at
// once, with the same names.
func imageNames(file io.Reader) ([]string, error) {
	var names []string
	known, recognised := map[string]bool{}, false
	note := func(name string) {
		// A bare tag, without a repository, says nothing.
		if strings.ContainsAny(name, "/:") && !known[name] {
			known[name] = true
			names = append(names, name)
		}
	}
	reader := tar.NewReader(file)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch filepath.Clean(header.Name) {
		case "index.json":
			var index struct {
				Manifests []struct{ Annotations map[string]string }
			}
			if err := json.NewDecoder(reader).Decode(&index); err != nil {
				return nil, err
			}
			recognised = true
			for _, manifest := range index.Manifests {
				if name := manifest.Annotations["io.containerd.image.name"]; name != "" {
					note(name)
				} else {
					note(manifest.Annotations["org.opencontainers.image.ref.name"])
				}
			}
		case "manifest.json":
			var images []struct{ RepoTags []string }
			if err := json.NewDecoder(reader).Decode(&images); err != nil {
				return nil, err
			}
			recognised = true
			for _, image := range images {
				for _, name := range image.RepoTags {
					note(name)
				}
			}
		}
	}
	if !recognised {
		return nil, errors.New("it holds neither index.json nor manifest.json")
	}
	return names, nil
}

// fullName completes an image's name in the way that container runtimes do.
func fullName(name string) string {
	first, _, several := strings.Cut(name, "/")
	switch {
	case !several:
		name = "docker.io/library/" + name
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		name = "docker.io/" + name
	}
	if last := name[strings.LastIndex(name, "/"):]; !strings.ContainsAny(last, ":@") {
		name += ":latest"
	}
	return name
}
