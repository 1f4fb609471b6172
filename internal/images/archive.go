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

// maxArchiveFiles bounds the files of an archive of images.
const maxArchiveFiles = 10_000

// Load adds the images of an archive: an OCI layout or what docker save writes, plain or compressed. The image of an archive with one image may be
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
	unlock, err := s.lock(ctx, shared) // blobs belong to no image until its manifest is stored
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
		return nil, errors.New("the archive does not name its image: give it a name with --tag")
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

// decompress returns an archive without its compression, which it detects. done must be called when it was read.
func decompress(r io.Reader) (plain io.Reader, done func(), err error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	magic, err := buffered.Peek(4)
	if err != nil {
		return nil, nil, fmt.Errorf("this is no archive of images that can be read: %w", err)
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

// archive is the content of an archive, whose files have been stored as blobs.
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
			return nil, fmt.Errorf("failed to read the archive: %w", err)
		}
		if len(a.files)+len(a.links) >= maxArchiveFiles {
			return nil, fmt.Errorf("the archive has more than %d files: it is not an archive of images", maxArchiveFiles)
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
		case tar.TypeSymlink: // old versions of docker save link layers that images share
			a.links[name] = path.Join(path.Dir(name), h.Linkname)
		case tar.TypeLink:
			a.links[name] = path.Clean("/" + h.Linkname)[1:]
		}
	}
}

// file returns the blob of a path in the archive.
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

// images returns the images of the archive: those of its index, or of its manifest.json if there is no index or if that has more names.
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
		return nil, errors.New("the archive has neither index.json (an OCI layout) nor manifest.json (docker save): it is not an archive of images")
	}
	if len(out) == 0 {
		return nil, errors.New("the archive has no images")
	}
	if len(out) > 1 {
		for _, i := range out {
			if i.Name == (Name{}) {
				return nil, fmt.Errorf("the archive has several images, and %s has no name", i.Content.Digest)
			}
		}
	}
	return out, nil
}

// annotated returns the name that the annotations of an index give to an image.
func annotated(all ...map[string]string) (Name, error) {
	for _, a := range all {
		if full := a["io.containerd.image.name"]; full != "" {
			return ParseName(full)
		}
		if ref := a["org.opencontainers.image.ref.name"]; strings.ContainsAny(ref, "/:") { // otherwise it is only a tag
			return ParseName(ref)
		}
	}
	return Name{}, nil
}

// dockerImage is an image in the manifest.json of docker save.
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
			return f, fmt.Errorf("the archive refers to %s, which is not in it", name)
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

// Whole reports whether the store has all blobs of an image.
func (s *Store) Whole(n Name) bool {
	d, err := s.Resolve(n)
	return err == nil && s.whole(d, 0) == nil
}

// whole fails unless the store has all blobs of an image. Of an index, it must have at least one image.
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
