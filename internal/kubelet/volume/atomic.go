package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// file is one file of a payload.
type file struct {
	data []byte
	mode int32
	user *int64 // its owner; the kubelet's user if nil
}

// files are the payload of a volume, by path.
type files map[string]file

const (
	dataLink  = "..data"     // a link to the directory of the current payload, whose name begins with the time it was written
	nextLink  = "..data_tmp" // the link that is renamed to dataLink
	timeStamp = "..2006_01_02_15_04_05."
)

// publish replaces the payload of a volume atomically: the files are written to a new directory, and ..data, a link through which every
// visible name goes, is then renamed to point there. If the payload has not changed nothing is touched. finish is called
// before the rename.
func publish(dir string, payload files, now time.Time, finish func() error) error {
	payload, err := checkPaths(payload)
	if err != nil {
		return err
	}
	current, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	old, err := oldPaths(dir, current)
	if err != nil {
		return err
	}
	if current == "" || !same(filepath.Join(dir, current), payload, old) {
		if err := swap(dir, payload, now, finish); err != nil {
			return err
		}
	}
	if err := link(dir, payload); err != nil {
		return err
	}
	names := topNames(payload)
	for p := range old {
		if name, _, _ := strings.Cut(p, "/"); !names[name] {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return prune(dir)
}

// checkPaths returns the payload by cleaned paths, and an error for paths that leave the volume or begin with ".." as the names of payload directories do.
func checkPaths(payload files) (files, error) {
	out := make(files, len(payload))
	for p, f := range payload {
		if err := checkPath(p); err != nil {
			return nil, err
		}
		out[path.Clean(p)] = f
	}
	return out, nil
}

func checkPath(p string) error {
	switch {
	case p == "":
		return fmt.Errorf("invalid path: must not be empty: %q", p)
	case path.IsAbs(p):
		return fmt.Errorf("invalid path: must be relative path: %s", p)
	case len(p) > 4096:
		return errors.New("invalid path: must be less than or equal to 4096 characters")
	case strings.HasPrefix(p, "..") && !strings.HasPrefix(p, "../") && p != "..":
		return fmt.Errorf("invalid path: must not start with '..': %s", p)
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return fmt.Errorf("invalid path: must not contain '..': %s", p)
		}
		if len(part) > 255 {
			return errors.New("invalid path: filenames must be less than or equal to 255 characters")
		}
	}
	if path.Clean(p) == "." {
		return fmt.Errorf("invalid path: must name a file: %q", p)
	}
	return nil
}

// oldPaths returns the paths of the current payload.
func oldPaths(dir, current string) (map[string]bool, error) {
	paths := map[string]bool{}
	if current == "" {
		return paths, nil
	}
	root := filepath.Join(dir, current)
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, p)
		paths[rel] = true
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return paths, nil
	}
	return paths, err
}

func same(dir string, payload files, old map[string]bool) bool {
	if len(old) != len(payload) {
		return false
	}
	for p, f := range payload {
		if !old[p] {
			return false
		}
		if data, err := os.ReadFile(filepath.Join(dir, p)); err != nil || !bytes.Equal(data, f.data) {
			return false
		}
	}
	return true
}

// swap writes files to a new directory and makes ..data point to it.
func swap(dir string, payload files, now time.Time, finish func() error) error {
	fresh, err := os.MkdirTemp(dir, now.UTC().Format(timeStamp))
	if err != nil {
		return err
	}
	err = func() error {
		if err := os.Chmod(fresh, 0o755); err != nil { // the umask may have removed bits
			return err
		}
		for p, f := range payload {
			if err := writeFile(fresh, p, f); err != nil {
				return err
			}
		}
		if err := finish(); err != nil {
			return err
		}
		next := filepath.Join(dir, nextLink)
		if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) { // a killed process may have left it
			return err
		}
		if err := os.Symlink(filepath.Base(fresh), next); err != nil {
			return err
		}
		return os.Rename(next, filepath.Join(dir, dataLink))
	}()
	if err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	return nil
}

func writeFile(dir, p string, f file) error {
	below := dir
	for part := range strings.SplitSeq(path.Dir(p), "/") {
		if part == "." {
			break
		}
		below = filepath.Join(below, part)
		if err := os.Mkdir(below, 0o755); err == nil {
			err = os.Chmod(below, 0o755)
			if err != nil {
				return err
			}
		} else if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	full, mode := filepath.Join(dir, p), fileMode(f.mode)
	if err := os.WriteFile(full, f.data, mode.Perm()); err != nil {
		return err
	}
	if f.user != nil {
		if err := os.Lchown(full, int(*f.user), -1); err != nil {
			return err
		}
	}
	return os.Chmod(full, mode) // after the owner, which takes some bits away
}

// fileMode returns a mode of the API, in the kernel's numbers, as Go has it.
func fileMode(mode int32) os.FileMode {
	m := os.FileMode(mode) & os.ModePerm
	for bit, flag := range map[int32]os.FileMode{0o4000: os.ModeSetuid, 0o2000: os.ModeSetgid, 0o1000: os.ModeSticky} {
		if mode&bit != 0 {
			m |= flag
		}
	}
	return m
}

// link makes the visible names, each a link through ..data.
func link(dir string, payload files) error {
	for name := range topNames(payload) {
		err := os.Symlink(path.Join(dataLink, name), filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func topNames(payload files) map[string]bool {
	names := map[string]bool{}
	for p := range payload {
		name, _, _ := strings.Cut(p, "/")
		names[name] = true
	}
	return names
}

// prune removes the directories of old payloads.
func prune(dir string) error {
	current, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var failed []error
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), "..") && e.Name() != current {
			failed = append(failed, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(failed...)
}
