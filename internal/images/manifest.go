package images

import (
	"encoding/json"
	"fmt"
)

// Media types of manifests and layers, of the OCI image specification and of Docker.
const (
	mediaIndex          = "application/vnd.oci.image.index.v1+json"
	mediaManifest       = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig         = "application/vnd.oci.image.config.v1+json"
	mediaLayer          = "application/vnd.oci.image.layer.v1.tar"
	mediaDockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
	mediaDockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	mediaDockerForeign  = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
)

// manifest is the manifest of an image, or an index of images for different platforms.
type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType,omitempty"`
	Config        *Descriptor       `json:"config,omitempty"`
	Layers        []Descriptor      `json:"layers,omitempty"`
	Manifests     []Descriptor      `json:"manifests,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// parseManifest parses a manifest; mediaType is the Content-Type that it was sent with, if it is known.
func parseManifest(data []byte, mediaType string) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("manifest: %w", err)
	}
	if m.SchemaVersion != 2 {
		return m, fmt.Errorf("manifest: schema version %d is not supported", m.SchemaVersion)
	}
	switch {
	case m.MediaType != "" && mediaType != "" && mediaType != m.MediaType:
		return m, fmt.Errorf("manifest: its media type is %s but it was sent as %s", m.MediaType, mediaType)
	case m.MediaType == "" && mediaType != "":
		m.MediaType = mediaType
	case m.MediaType == "" && m.Config == nil:
		m.MediaType = mediaIndex
	case m.MediaType == "":
		m.MediaType = mediaManifest
	}
	switch m.MediaType {
	case mediaManifest, mediaDockerManifest:
		if m.Config == nil {
			return m, fmt.Errorf("manifest: it has no configuration")
		}
	case mediaIndex, mediaDockerList:
	default:
		return m, fmt.Errorf("manifest: media type %s is not supported", m.MediaType)
	}
	for _, d := range m.all() {
		if _, err := ParseDigest(string(d.Digest)); err != nil {
			return m, fmt.Errorf("manifest: %w", err)
		}
	}
	return m, nil
}

// all returns all descriptors of a manifest.
func (m *manifest) all() []Descriptor {
	out := append([]Descriptor(nil), m.Layers...)
	if m.Config != nil {
		out = append(out, *m.Config)
	}
	return append(out, m.Manifests...)
}

// content returns the descriptors of the blobs that the store must have of an image. Images of an index may be missing.
func (m *manifest) content() []Descriptor {
	if m.Config == nil {
		return nil
	}
	out := []Descriptor{*m.Config}
	for _, l := range m.Layers {
		if l.MediaType != mediaDockerForeign && len(l.URLs) == 0 { // foreign layers are fetched from elsewhere
			out = append(out, l)
		}
	}
	return out
}

// maxDepth bounds indexes within indexes.
const maxDepth = 4

// reach calls f once for every blob of a manifest that the store has, the manifest included.
func (s *Store) reach(root Descriptor, seen map[Digest]bool, f func(Descriptor)) {
	s.reachDown(root, seen, f, 0)
}

func (s *Store) reachDown(d Descriptor, seen map[Digest]bool, f func(Descriptor), depth int) {
	if seen[d.Digest] || depth > maxDepth {
		return
	}
	size, err := s.has(d.Digest)
	if err != nil {
		return
	}
	seen[d.Digest] = true
	d.Size = size
	f(d)
	switch d.MediaType {
	case mediaIndex, mediaManifest, mediaDockerList, mediaDockerManifest:
	default:
		return
	}
	data, err := s.read(d.Digest)
	if err != nil {
		return
	}
	m, err := parseManifest(data, "")
	if err != nil {
		return
	}
	for _, below := range m.all() {
		s.reachDown(below, seen, f, depth+1)
	}
}

func (s *Store) sizeOf(d Descriptor) (total int64) {
	s.reach(d, map[Digest]bool{}, func(d Descriptor) { total += d.Size })
	return total
}
