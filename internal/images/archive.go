package images

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxArchiveFiles is how many files an archive of images may hold.
const maxArchiveFiles = 10_000

// Load brings the images of an archive: an OCI layout or what docker save writes, as it is or compressed. An archive of one image may be
// given another name. It returns the names.
func (s *Store) Load(ctx context.Context, r io.Reader, as string) ([]Name, error) {
	var rename *Name
	if as != "" {
		n, err := ParseName(as)
		if err != nil {
			return nil, err
		}
		rename = &n
	}
	plain, done, err := decompress(r)
	if err != nil {
		return nil, err
	}
	defer done()
	unlock, err := s.lock(ctx, shared) // what comes in belongs to nothing until its manifest is there
	if err != nil {
		return nil, err
	}
	defer unlock()
	a, err := s.ingest(ctx, plain)
	if err != nil {
		return nil, err
	}
	images, err := a.images()
	if err != nil {
		return nil, err
	}
	if rename != nil {
		if len(images) != 1 {
			return nil, fmt.Errorf("the archive holds %d images: they cannot all be called %s", len(images), as)
		}
		images[0].Name = *rename
	}
	if images[0].Name == (Name{}) {
		return nil, errors.New("the archive does not say what its image is called: give it a name")
	}
	var names []Name
	for _, i := range images {
		if err := s.whole(i.Content, 0); err != nil {
			return names, fmt.Errorf("%s: %w", i.Name, err)
		}
		if err := s.name(i.Name, i.Content); err != nil {
			return names, err
		}
		names = append(names, i.Name)
	}
	return names, nil
}

// decompress finds out how an archive is compressed.
func decompress(r io.Reader) (plain io.Reader, done func(), err error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	magic, err := buffered.Peek(4)
	if err != nil {
		return nil, nil, fmt.Errorf("this is no archive: %w", err)
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(buffered)
		return z, func() {}, err
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return buffered, func() {}, nil
}

// archive is what an archive held: all its files are blobs now.
type archive struct {
	s     *Store
	files map[string]Descriptor
	links map[string]string
}

func (s *Store) ingest(ctx context.Context, r io.Reader) (*archive, error) {
	a := &archive{s: s, files: map[string]Descriptor{}, links: map[string]string{}}
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("reading the archive: %w", err)
		}
		if len(a.files)+len(a.links) >= maxArchiveFiles {
			return nil, fmt.Errorf("the archive holds more than %d files: it is no archive of images", maxArchiveFiles)
		}
		name := path.Clean("/" + h.Name)[1:]
		switch h.Typeflag {
		case tar.TypeReg:
			var want Digest
			if hex, ok := strings.CutPrefix(name, "blobs/sha256/"); ok {
				if want, err = ParseDigest("sha256:" + hex); err != nil {
					return nil, err
				}
			}
			if a.files[name], err = s.put(t, want); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		case tar.TypeSymlink: // docker save of old links layers that images share
			a.links[name] = path.Join(path.Dir(name), h.Linkname)
		case tar.TypeLink:
			a.links[name] = path.Clean("/" + h.Linkname)[1:]
		}
	}
}

// file finds what an archive has at a path.
func (a *archive) file(name string) (Descriptor, bool) {
	for range 8 {
		if d, ok := a.files[name]; ok {
			return d, true
		}
		to, ok := a.links[name]
		if !ok {
			break
		}
		name = to
	}
	return Descriptor{}, false
}

func (a *archive) readJSON(name string, into any) (bool, error) {
	d, ok := a.file(name)
	if !ok {
		return false, nil
	}
	data, err := a.s.read(d.Digest)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return true, err
}

// images are those in an archive: as its index has them, or its manifest.json if there is none or if that has more names.
func (a *archive) images() ([]Image, error) {
	var index manifest
	isLayout, err := a.readJSON("index.json", &index)
	if err != nil {
		return nil, err
	}
	var docker []dockerImage
	isDocker, err := a.readJSON("manifest.json", &docker)
	if err != nil {
		return nil, err
	}
	var out []Image
	if isLayout {
		for _, d := range index.Manifests {
			n, err := annotated(d.Annotations, index.Annotations)
			if err != nil {
				return nil, err
			}
			out = append(out, Image{Name: n, Content: d})
		}
	} else if isDocker {
		for _, d := range docker {
			images, err := a.convert(d)
			if err != nil {
				return nil, err
			}
			out = append(out, images...)
		}
	} else {
		return nil, errors.New("the archive has neither index.json (an OCI layout) nor manifest.json (docker save): it is no archive of images")
	}
	if len(out) == 0 {
		return nil, errors.New("the archive holds no images")
	}
	if len(out) > 1 {
		for _, i := range out {
			if i.Name == (Name{}) {
				return nil, fmt.Errorf("the archive holds several images, and %s has no name", i.Content.Digest)
			}
		}
	}
	return out, nil
}

// annotated is the name that an index gives to one of its images.
func annotated(all ...map[string]string) (Name, error) {
	for _, a := range all {
		if full := a["io.containerd.image.name"]; full != "" {
			return ParseName(full)
		}
		if ref := a["org.opencontainers.image.ref.name"]; strings.ContainsAny(ref, "/:") { // else it is a mere tag
			return ParseName(ref)
		}
	}
	return Name{}, nil
}

// dockerImage is an image in manifest.json.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// convert makes a manifest for an image that docker save wrote without one.
func (a *archive) convert(d dockerImage) ([]Image, error) {
	m := manifest{SchemaVersion: 2, MediaType: mediaManifest}
	find := func(name, mediaType string) (Descriptor, error) {
		f, ok := a.file(path.Clean(name))
		if !ok {
			return f, fmt.Errorf("the archive speaks of %s, which is not in it", name)
		}
		f.MediaType = mediaType
		return f, nil
	}
	config, err := find(d.Config, mediaConfig)
	if err != nil {
		return nil, err
	}
	m.Config = &config
	for _, l := range d.Layers {
		layer, err := find(l, mediaLayer)
		if err != nil {
			return nil, err
		}
		m.Layers = append(m.Layers, layer)
	}
	desc, err := a.s.putJSON(m, mediaManifest)
	if err != nil {
		return nil, err
	}
	if len(d.RepoTags) == 0 {
		return []Image{{Content: desc}}, nil
	}
	var out []Image
	for _, tag := range d.RepoTags {
		n, err := ParseName(tag)
		if err != nil {
			return nil, err
		}
		out = append(out, Image{Name: n, Content: desc})
	}
	return out, nil
}

// Whole reports whether all of an image is here.
func (s *Store) Whole(n Name) bool {
	d, err := s.Resolve(n)
	return err == nil && s.whole(d, 0) == nil
}

// whole checks that all of an image is here. Of a list at least one image must be.
func (s *Store) whole(d Descriptor, depth int) error {
	data, err := s.read(d.Digest)
	if err != nil {
		return fmt.Errorf("%w: its manifest", missingError{d.Digest})
	}
	m, err := parseManifest(data, "")
	if err != nil {
		return err
	}
	for _, c := range m.content() {
		if _, err := s.has(c.Digest); err != nil {
			return missingError{c.Digest}
		}
	}
	if len(m.Manifests) == 0 || depth >= maxDepth {
		return nil
	}
	var failed error
	for _, below := range m.Manifests {
		if failed = s.whole(below, depth+1); failed == nil {
			return nil
		}
	}
	return failed
}

func (s *Store) putJSON(v any, mediaType string) (Descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return Descriptor{}, err
	}
	d, err := s.put(bytes.NewReader(data), "")
	d.MediaType = mediaType
	return d, err
}

// Save writes images as an OCI layout that Load, containerd, docker and podman read.
func (s *Store) Save(ctx context.Context, w io.Writer, names ...Name) error {
	unlock, err := s.lock(ctx, shared)
	if err != nil {
		return err
	}
	defer unlock()
	index := manifest{SchemaVersion: 2, MediaType: mediaIndex}
	t := tar.NewWriter(w)
	seen := map[Digest]bool{}
	for _, n := range names {
		d, err := s.Resolve(n)
		if err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
		tag := n.Tag
		if tag == "" {
			tag = string(n.Digest)
		}
		d.Annotations = map[string]string{"io.containerd.image.name": n.String(), "org.opencontainers.image.ref.name": tag}
		index.Manifests = append(index.Manifests, d)
		var content []Descriptor
		s.reach(d, seen, func(d Descriptor) { content = append(content, d) })
		for _, c := range content {
			if err := errors.Join(ctx.Err(), s.saveBlob(t, c)); err != nil {
				return err
			}
		}
	}
	data, err := json.Marshal(index)
	if err != nil {
		return err
	}
	if err := saveFile(t, "oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	if err := saveFile(t, "index.json", data); err != nil {
		return err
	}
	return t.Close()
}

func (s *Store) saveBlob(t *tar.Writer, d Descriptor) error {
	f, err := s.open(d.Digest)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := t.WriteHeader(&tar.Header{Name: "blobs/sha256/" + d.Digest.hex(), Mode: 0o644, Size: d.Size}); err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return err
}

func saveFile(t *tar.Writer, name string, data []byte) error {
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := t.Write(data)
	return err
}
