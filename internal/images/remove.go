package images

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// grace is how long a blob that no image uses is kept: the manifest of its image may still be uploaded.
const grace = time.Hour

// Remove removes a name, and the blobs that no other image uses.
func (s *Store) Remove(ctx context.Context, n Name) error {
	unlock, err := s.lock(ctx, alone)
	if err != nil {
		return err
	}
	defer unlock()
	root, err := s.Resolve(n)
	if err != nil {
		return err
	}
	path := s.tagPath(n)
	if n.Digest != "" {
		path = s.manifestPath(n)
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	if err := s.tidy(n); err != nil {
		return err
	}
	mine := map[Digest]bool{}
	s.reach(root, mine, func(Descriptor) {})
	used, err := s.used()
	if err != nil {
		return err
	}
	var failed error
	for d := range mine {
		if !used[d] {
			failed = errors.Join(failed, ignoreUnknown(os.Remove(s.blobPath(d))))
		}
	}
	return failed
}

// tidy removes a repository that has no tags left: manifests that were pushed by digest are parts of what had tags.
func (s *Store) tidy(n Name) error {
	repository := s.repository(n)
	tags, err := os.ReadDir(filepath.Join(repository, "_tags"))
	if len(tags) > 0 || ignoreUnknown(err) != nil {
		return err
	}
	if n.Digest == "" {
		if err := os.RemoveAll(filepath.Join(repository, "_manifests")); err != nil {
			return err
		}
	}
	for _, dir := range []string{filepath.Join(repository, "_tags"), filepath.Join(repository, "_manifests")} {
		os.Remove(dir) // fails if it is not empty
	}
	for dir := repository; dir != s.nameDir() && os.Remove(dir) == nil; dir = filepath.Dir(dir) {
	}
	return nil
}

// used returns the digests of all blobs that belong to an image.
func (s *Store) used() (map[Digest]bool, error) {
	used := map[Digest]bool{}
	err := s.eachName(func(n Name, _ fs.FileInfo) error {
		d, err := s.Resolve(n)
		if err != nil {
			return ignoreUnknown(err)
		}
		s.reach(d, used, func(Descriptor) {})
		return nil
	})
	return used, err
}

// Collect removes blobs that have belonged to no image for a while, such as those of abandoned uploads.
func (s *Store) Collect(ctx context.Context, now time.Time) (freed int64, err error) {
	unlock, err := s.lock(ctx, alone)
	if err != nil {
		return 0, err
	}
	defer unlock()
	used, err := s.used()
	if err != nil {
		return 0, err
	}
	for _, dir := range []string{s.blobDir(), s.partDir()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return freed, err
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || now.Sub(info.ModTime()) < grace || dir == s.blobDir() && used[Digest("sha256:"+e.Name())] {
				continue
			}
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return freed, err
			}
			freed += info.Size()
		}
	}
	return freed, nil
}
