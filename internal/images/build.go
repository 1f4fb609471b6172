package images

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Recipe is the default name of the file that says how an image is built.
const Recipe = "Dockerfile"

const (
	// defaultPath is the PATH of images that do not set it.
	defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// maxContextFiles bounds the files that a step may copy.
	maxContextFiles = 1_000_000
)

// Build builds an image from a directory, by a file in it with those instructions of a Dockerfile that run no programs: FROM (scratch, or
// an image in the store), COPY, ENV, ENTRYPOINT, CMD, EXPOSE, USER, WORKDIR, VOLUME, LABEL and STOPSIGNAL.
//
// Every COPY is a layer. Files keep their times and modes, and belong to root or to the owner of --chown, so that the same files make the
// same layer.
func (s *Store) Build(ctx context.Context, dir, recipe string, n Name) (Descriptor, error) {
	if n.Digest != "" {
		return Descriptor{}, fmt.Errorf("%s: an image that is built is named by a tag, not by a digest", n)
	}
	if recipe == "" {
		recipe = filepath.Join(dir, Recipe)
	}
	text, err := os.ReadFile(recipe)
	if err != nil {
		return Descriptor{}, err
	}
	steps, err := parseSteps(string(text))
	if err != nil {
		return Descriptor{}, fmt.Errorf("%s: %w", recipe, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Descriptor{}, err
	}
	defer root.Close()
	unlock, err := s.lock(ctx, shared)
	if err != nil {
		return Descriptor{}, err
	}
	defer unlock()
	b := &builder{s: s, context: root, config: imageConfig{Architecture: runtime.GOARCH, OS: "linux"}}
	for _, step := range steps {
		if err := errors.Join(ctx.Err(), b.take(step)); err != nil {
			return Descriptor{}, fmt.Errorf("%s:%d: %s: %w", recipe, step.line, step.verb, err)
		}
	}
	d, err := b.finish()
	if err != nil {
		return d, err
	}
	return d, s.name(n, d)
}

// imageConfig is the configuration of an image.
type imageConfig struct {
	Architecture string          `json:"architecture"`
	OS           string          `json:"os"`
	Variant      string          `json:"variant,omitempty"`
	Created      string          `json:"created,omitempty"`
	Config       containerConfig `json:"config"`
	RootFS       rootFS          `json:"rootfs"`
}

type containerConfig struct {
	User         string              `json:"User,omitempty"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
	Env          []string            `json:"Env,omitempty"`
	Entrypoint   []string            `json:"Entrypoint,omitempty"`
	Cmd          []string            `json:"Cmd,omitempty"`
	Volumes      map[string]struct{} `json:"Volumes,omitempty"`
	WorkingDir   string              `json:"WorkingDir,omitempty"`
	Labels       map[string]string   `json:"Labels,omitempty"`
	StopSignal   string              `json:"StopSignal,omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []Digest `json:"diff_ids"`
}

// builder builds one image.
type builder struct {
	s       *Store
	context *os.Root
	begun   bool
	config  imageConfig
	layers  []Descriptor
}

func (b *builder) take(s step) error {
	if !b.begun && s.verb != "FROM" {
		return errors.New("an image begins with FROM")
	}
	c := &b.config.Config
	switch s.verb {
	case "FROM":
		return b.from(s)
	case "COPY":
		return b.copy(s)
	case "ENV":
		return s.pairs(func(k, v string) {
			c.Env = slices.DeleteFunc(c.Env, func(e string) bool { return strings.HasPrefix(e, k+"=") })
			c.Env = append(c.Env, k+"="+v)
		})
	case "LABEL":
		return s.pairs(func(k, v string) { put(&c.Labels, k, v) })
	case "ENTRYPOINT":
		c.Entrypoint, c.Cmd = s.command(), nil
	case "CMD":
		c.Cmd = s.command()
	case "EXPOSE":
		for _, port := range s.words {
			if !strings.Contains(port, "/") {
				port += "/tcp"
			}
			put(&c.ExposedPorts, port, struct{}{})
		}
	case "VOLUME":
		for _, v := range s.list() {
			put(&c.Volumes, v, struct{}{})
		}
	case "USER", "WORKDIR", "STOPSIGNAL":
		if len(s.words) != 1 {
			return errors.New("it takes one argument")
		}
		switch s.verb {
		case "USER":
			c.User = s.words[0]
		case "STOPSIGNAL":
			c.StopSignal = s.words[0]
		case "WORKDIR":
			c.WorkingDir = path.Join("/", c.WorkingDir, s.words[0])
			if path.IsAbs(s.words[0]) {
				c.WorkingDir = path.Clean(s.words[0])
			}
		}
	case "RUN":
		return errors.New("skiff image build runs no programs: build the files first and COPY them, or bring an image that another builder made with skiff image load")
	default:
		return fmt.Errorf("this is not one of FROM, COPY, ENV, ENTRYPOINT, CMD, EXPOSE, USER, WORKDIR, VOLUME, LABEL and STOPSIGNAL")
	}
	return nil
}

func put[V any](m *map[string]V, k string, v V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[k] = v
}

func (b *builder) from(s step) error {
	if b.begun {
		return errors.New("an image begins with one FROM; stages are not supported")
	}
	if len(s.words) != 1 {
		return errors.New("it takes the name of an image, or scratch")
	}
	b.begun = true
	b.config.RootFS.Type = "layers"
	if s.words[0] == "scratch" {
		b.config.Config.Env = []string{defaultPath}
		return nil
	}
	n, err := ParseName(s.words[0])
	if err != nil {
		return err
	}
	m, err := b.s.forPlatform(n, b.config.OS, b.config.Architecture)
	if err != nil {
		return err
	}
	data, err := b.s.read(m.Config.Digest)
	if err != nil {
		return err
	}
	b.layers = m.Layers
	b.config = imageConfig{}
	return json.Unmarshal(data, &b.config)
}

// forPlatform returns the manifest of a name for a platform.
func (s *Store) forPlatform(n Name, os, arch string) (manifest, error) {
	d, err := s.Resolve(n)
	if err != nil {
		return manifest{}, fmt.Errorf("%s is not here (skiff image load brings it): %w", n, err)
	}
	for range maxDepth {
		data, err := s.read(d.Digest)
		if err != nil {
			return manifest{}, err
		}
		m, err := parseManifest(data, d.MediaType)
		if err != nil || m.Config != nil {
			return m, err
		}
		i := slices.IndexFunc(m.Manifests, func(d Descriptor) bool {
			return d.Platform == nil || d.Platform.OS == os && d.Platform.Architecture == arch
		})
		if i < 0 {
			break
		}
		d = m.Manifests[i]
	}
	return manifest{}, fmt.Errorf("%s is not for %s/%s", n, os, arch)
}

// copy adds a layer with files of the build context.
func (b *builder) copy(s step) error {
	var owner struct{ uid, gid int }
	words := s.list()
	for len(words) > 0 && strings.HasPrefix(words[0], "--") {
		flag, value, _ := strings.Cut(words[0], "=")
		if flag != "--chown" {
			return fmt.Errorf("%s is not supported", flag)
		}
		if n, err := fmt.Sscanf(value+" ", "%d:%d ", &owner.uid, &owner.gid); n == 1 {
			owner.gid = owner.uid
		} else if err != nil {
			return fmt.Errorf("--chown=%s: it takes numbers, as in --chown=101:101", value)
		}
		words = words[1:]
	}
	if len(words) < 2 {
		return errors.New("it takes sources and a destination")
	}
	to := words[len(words)-1]
	into := strings.HasSuffix(to, "/") || to == "." || len(words) > 2
	if !path.IsAbs(to) {
		to = path.Join("/", b.config.Config.WorkingDir, to)
	}
	p, err := b.s.newPart()
	if err != nil {
		return err
	}
	l := &layer{t: tar.NewWriter(p), context: b.context, uid: owner.uid, gid: owner.gid, made: map[string]bool{"": true}}
	for _, from := range words[:len(words)-1] {
		if err := l.add(from, path.Clean(to), into); err != nil {
			p.drop()
			return err
		}
	}
	if err := l.t.Close(); err != nil {
		p.drop()
		return err
	}
	d, err := p.keep("")
	if err != nil {
		return err
	}
	d.MediaType = mediaLayer
	b.layers = append(b.layers, d)
	b.config.RootFS.DiffIDs = append(b.config.RootFS.DiffIDs, d.Digest)
	return nil
}

// finish stores the configuration and the manifest.
func (b *builder) finish() (Descriptor, error) {
	if !b.begun {
		return Descriptor{}, errors.New("the recipe is empty: an image begins with FROM")
	}
	if b.config.RootFS.DiffIDs == nil {
		b.config.RootFS.DiffIDs = []Digest{}
	}
	config, err := b.s.putJSON(b.config, mediaConfig)
	if err != nil {
		return config, err
	}
	return b.s.putJSON(manifest{SchemaVersion: 2, MediaType: mediaManifest, Config: &config, Layers: b.layers}, mediaManifest)
}

// layer is a layer being written.
type layer struct {
	t        *tar.Writer
	context  *os.Root
	uid, gid int
	made     map[string]bool // directories that the layer has
	count    int
}

// add copies what a pattern matches: the content of a directory into to, a file as to, or into it if into is set.
func (l *layer) add(pattern, to string, into bool) error {
	pattern = path.Clean("/" + filepath.ToSlash(pattern))[1:]
	if pattern == "" {
		pattern = "."
	}
	matches, err := fs.Glob(l.context.FS(), pattern)
	if err != nil {
		return err
	}
	if len(matches) == 0 {
		return fmt.Errorf("%s is not in %s", pattern, l.context.Name())
	}
	for _, from := range matches {
		info, err := l.context.Stat(from)
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			err = l.tree(from, to)
		case into || len(matches) > 1:
			err = l.file(from, path.Join(to, path.Base(from)), false)
		default:
			err = l.file(from, to, false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *layer) tree(from, to string) error {
	return fs.WalkDir(l.context.FS(), from, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		return l.file(p, path.Join(to, rel), true)
	})
}

// file adds one file, link or directory. Links within a tree are copied as links; one that the pattern names is followed.
func (l *layer) file(from, to string, keepLink bool) error {
	if l.count++; l.count > maxContextFiles {
		return fmt.Errorf("more than %d files", maxContextFiles)
	}
	stat := l.context.Stat
	if keepLink {
		stat = l.context.Lstat
	}
	info, err := stat(from)
	if err != nil {
		return err
	}
	to = strings.TrimPrefix(to, "/")
	if to == "" || info.IsDir() && l.made[to] {
		return nil
	}
	if err := l.parents(to); err != nil {
		return err
	}
	h := &tar.Header{Name: to, Mode: unixMode(info.Mode()), Uid: l.uid, Gid: l.gid, ModTime: info.ModTime().UTC().Truncate(1e9), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		l.made[to] = true
		h.Typeflag, h.Name = tar.TypeDir, to+"/"
		return l.t.WriteHeader(h)
	case info.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = l.context.Readlink(from); err != nil {
			return err
		}
		return l.t.WriteHeader(h)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is neither a file, a directory nor a link", from)
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	f, err := l.context.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := l.t.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(l.t, f)
	return err
}

// parents adds the parent directories of a path.
func (l *layer) parents(to string) error {
	dir := path.Dir(to)
	if dir == "." || l.made[dir] {
		return nil
	}
	if err := l.parents(dir); err != nil {
		return err
	}
	l.made[dir] = true
	return l.t.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755, Format: tar.FormatPAX})
}

// unixMode returns a mode with the bits as tar has them.
func unixMode(m fs.FileMode) int64 {
	mode := int64(m.Perm())
	for bit, is := range map[int64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if m&is != 0 {
			mode |= bit
		}
	}
	return mode
}
