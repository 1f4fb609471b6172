package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxManifest bounds the size of a manifest or an index.
	maxManifest = 4 << 20
	// maxBlob bounds the size of a blob.
	maxBlob = 64 << 30
	// maxTags bounds the names of a store.
	maxTags = 100_000
)

// Store keeps images in a directory.
type Store struct {
	dir string

	mu    sync.Mutex
	known map[Digest]fileID // blobs whose digests this process has verified
}

// Open opens a store in a directory, which it creates if there is none.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir, known: map[Digest]fileID{}}
	for _, sub := range []string{s.blobDir(), s.nameDir(), s.partDir()} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Store) blobDir() string { return filepath.Join(s.dir, "blobs", "sha256") }
func (s *Store) nameDir() string { return filepath.Join(s.dir, "names") }
func (s *Store) partDir() string { return filepath.Join(s.dir, "parts") }

func (s *Store) blobPath(d Digest) string { return filepath.Join(s.blobDir(), d.hex()) }

// Digest is the SHA-256 of a blob: "sha256:" and 64 hexadecimal digits.
type Digest string

// ParseDigest parses a digest.
func ParseDigest(s string) (Digest, error) {
	h, ok := strings.CutPrefix(s, "sha256:")
	if !ok || len(h) != 64 || strings.Trim(h, "0123456789abcdef") != "" {
		return "", fmt.Errorf("%q is not a digest of the form sha256:<64 hexadecimal digits>", s)
	}
	return Digest(s), nil
}

func (d Digest) hex() string { return strings.TrimPrefix(string(d), "sha256:") }

func digestOf(sum []byte) Digest { return Digest("sha256:" + hex.EncodeToString(sum)) }

// errUnknown is the error of lookups for what the store does not have.
var errUnknown = fs.ErrNotExist

// errMismatch says that a blob does not have its digest.
var errMismatch = errors.New("content does not match its digest")

// damagedError says that a blob was damaged on disk. It counts as unknown.
type damagedError struct{ digest Digest }

func (e damagedError) Error() string {
	return fmt.Sprintf("%s was damaged on the disk, and is removed", e.digest)
}

func (e damagedError) Is(target error) bool { return target == errUnknown }

// part is a blob that is being written. It has no digest until it is kept.
type part struct {
	s    *Store
	file *os.File
	hash interface {
		io.Writer
		Sum([]byte) []byte
	}
	size int64
	kept bool
}

func (s *Store) newPart() (*part, error) {
	f, err := os.CreateTemp(s.partDir(), "part-")
	if err != nil {
		return nil, err
	}
	return &part{s: s, file: f, hash: sha256.New()}, nil
}

func (p *part) Write(b []byte) (int, error) {
	if p.size+int64(len(b)) > maxBlob {
		return 0, fmt.Errorf("a blob may have at most %d bytes", int64(maxBlob))
	}
	n, err := p.file.Write(b)
	p.hash.Write(b[:n])
	p.size += int64(n)
	return n, err
}

func (p *part) digest() Digest { return digestOf(p.hash.Sum(nil)) }

// keep stores the blob under its digest, in place of one that was there: a blob that was damaged on disk is repaired by adding it again.
func (p *part) keep(want Digest) (Descriptor, error) {
	defer p.drop()
	got := p.digest()
	if want != "" && got != want {
		return Descriptor{}, fmt.Errorf("%w: it is %s, not %s", errMismatch, got, want)
	}
	if err := p.file.Sync(); err != nil {
		return Descriptor{}, err
	}
	if err := os.Rename(p.file.Name(), p.s.blobPath(got)); err != nil {
		return Descriptor{}, err
	}
	p.kept = true
	p.s.trust(got, p.file)
	return Descriptor{Digest: got, Size: p.size}, nil
}

// drop removes the part, unless it was kept.
func (p *part) drop() {
	if !p.kept {
		os.Remove(p.file.Name())
	}
	p.file.Close()
}

// put stores a blob, which must have the digest want if that is not empty.
func (s *Store) put(r io.Reader, want Digest) (Descriptor, error) {
	p, err := s.newPart()
	if err != nil {
		return Descriptor{}, err
	}
	if _, err := io.Copy(p, r); err != nil {
		p.drop()
		return Descriptor{}, err
	}
	return p.keep(want)
}

// fileID identifies a file and its version.
type fileID struct {
	size int64
	time time.Time
}

func idOf(f *os.File) (fileID, error) {
	info, err := f.Stat()
	if err != nil {
		return fileID{}, err
	}
	return fileID{info.Size(), info.ModTime()}, nil
}

// trust records that the digest of a file was verified.
func (s *Store) trust(d Digest, f *os.File) {
	id, err := idOf(f)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxTags {
		clear(s.known)
	}
	s.known[d] = id
}

// open opens a blob for reading. The first time that a process opens a blob its digest is verified, and one that was damaged on disk is
// removed: clients then use another registry, or add it again.
func (s *Store) open(d Digest) (*os.File, error) {
	f, err := os.Open(s.blobPath(d))
	if err != nil {
		return nil, err
	}
	id, err := idOf(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	s.mu.Lock()
	trusted := s.known[d] == id
	s.mu.Unlock()
	if trusted {
		return f, nil
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		f.Close()
		return nil, err
	}
	if got := digestOf(hash.Sum(nil)); got != d {
		f.Close()
		if err := os.Remove(s.blobPath(d)); err != nil {
			return nil, err
		}
		return nil, damagedError{d}
	}
	s.trust(d, f)
	_, err = f.Seek(0, io.SeekStart)
	return f, err
}

// has returns the size of a blob, or errUnknown.
func (s *Store) has(d Digest) (int64, error) {
	info, err := os.Stat(s.blobPath(d))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// touch keeps a blob from being collected before the manifest that refers to it is stored.
func (s *Store) touch(d Digest) error {
	info, err := os.Stat(s.blobPath(d))
	if err != nil {
		return err
	}
	if now := time.Now(); now.Sub(info.ModTime()) > grace/2 {
		return os.Chtimes(s.blobPath(d), now, now)
	}
	return nil
}

// read returns a small blob.
func (s *Store) read(d Digest) ([]byte, error) {
	f, err := s.open(d)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, maxManifest)
}

// readAll reads everything, and fails if it is longer than limit.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("longer than %d bytes", limit)
	}
	return data, err
}

// Descriptor describes a blob.
type Descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      Digest            `json:"digest"`
	Size        int64             `json:"size"`
	URLs        []string          `json:"urls,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *Platform         `json:"platform,omitempty"`
}

// Platform is the platform of an image.
type Platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

// Resolve returns the manifest of a name.
func (s *Store) Resolve(n Name) (Descriptor, error) {
	if n.Digest != "" {
		data, err := s.read(n.Digest)
		if err != nil {
			return Descriptor{}, err
		}
		m, err := parseManifest(data, "")
		return Descriptor{MediaType: m.MediaType, Digest: n.Digest, Size: int64(len(data))}, err
	}
	data, err := os.ReadFile(s.tagPath(n))
	if err != nil {
		return Descriptor{}, err
	}
	var d Descriptor
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("%s: %w", n, err)
	}
	return d, nil
}

func (s *Store) repository(n Name) string {
	return filepath.Join(s.nameDir(), n.Registry, filepath.FromSlash(n.Repository))
}
func (s *Store) tagPath(n Name) string { return filepath.Join(s.repository(n), "_tags", n.Tag) }
func (s *Store) manifestPath(n Name) string {
	return filepath.Join(s.repository(n), "_manifests", n.Digest.hex())
}

// putManifest stores a manifest, whose blobs the store must have, under a name.
func (s *Store) putManifest(ctx context.Context, n Name, mediaType string, data []byte) (Descriptor, error) {
	m, err := parseManifest(data, mediaType)
	if err != nil {
		return Descriptor{}, err
	}
	unlock, err := s.lock(ctx, shared)
	if err != nil {
		return Descriptor{}, err
	}
	defer unlock()
	for _, d := range m.content() {
		if _, err := s.has(d.Digest); err != nil {
			return Descriptor{}, missingError{d.Digest}
		}
	}
	desc, err := s.put(strings.NewReader(string(data)), n.Digest)
	if err != nil {
		return desc, err
	}
	desc.MediaType = m.MediaType
	return desc, s.name(n, desc)
}

// missingError says that the store does not have a blob that a manifest refers to.
type missingError struct{ digest Digest }

func (e missingError) Error() string { return fmt.Sprintf("%s is not here", e.digest) }

// name sets the manifest of a name.
func (s *Store) name(n Name, d Descriptor) error {
	path := s.tagPath(n)
	if n.Tag == "" {
		path = s.manifestPath(Name{Registry: n.Registry, Repository: n.Repository, Digest: d.Digest})
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	data, err := json.Marshal(Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(s.partDir(), "name-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails after the rename
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Image is a name and its manifest.
type Image struct {
	Name    Name
	Content Descriptor
	Size    int64     // of all its blobs, shared or not
	Since   time.Time // when the name was last set
}

// List returns the images by name.
func (s *Store) List() ([]Image, error) {
	var out []Image
	err := s.eachName(func(n Name, info fs.FileInfo) error {
		d, err := s.Resolve(n)
		if err != nil {
			return ignoreUnknown(err)
		}
		out = append(out, Image{Name: n, Content: d, Since: info.ModTime(), Size: s.sizeOf(d)})
		return nil
	})
	tagged := map[string]bool{}
	for _, i := range out {
		if i.Name.Tag != "" {
			tagged[s.repository(i.Name)] = true
		}
	}
	// Manifests that were pushed by digest beside tags are those of the tags' indexes.
	out = slices.DeleteFunc(out, func(i Image) bool { return i.Name.Tag == "" && tagged[s.repository(i.Name)] })
	slices.SortFunc(out, func(a, b Image) int { return strings.Compare(a.Name.String(), b.Name.String()) })
	return out, err
}

func ignoreUnknown(err error) error {
	if errors.Is(err, errUnknown) {
		return nil
	}
	return err
}

// eachName calls f for every name: tags, and manifests that were pushed by digest.
func (s *Store) eachName(f func(Name, fs.FileInfo) error) error {
	count := 0
	return filepath.WalkDir(s.nameDir(), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return ignoreUnknown(err)
		}
		if e.IsDir() {
			return nil
		}
		if count++; count > maxTags {
			return fmt.Errorf("%s holds more than %d names", s.dir, maxTags)
		}
		n, ok := s.nameOf(path)
		info, err := e.Info()
		if !ok || err != nil {
			return ignoreUnknown(err)
		}
		return f(n, info)
	})
}

// nameOf returns the name that a file under names is of.
func (s *Store) nameOf(path string) (Name, bool) {
	rel, err := filepath.Rel(s.nameDir(), path)
	if err != nil {
		return Name{}, false
	}
	dir, last := filepath.Split(filepath.ToSlash(rel))
	dir = strings.TrimSuffix(dir, "/")
	registry, repository, _ := strings.Cut(dir, "/")
	if r, ok := strings.CutSuffix(repository, "/_tags"); ok {
		return Name{Registry: registry, Repository: r, Tag: last}, true
	}
	if r, ok := strings.CutSuffix(repository, "/_manifests"); ok {
		return Name{Registry: registry, Repository: r, Digest: Digest("sha256:" + last)}, true
	}
	return Name{}, false
}
