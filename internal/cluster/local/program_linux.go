package local

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"skiff/internal/bundle"
)

// placePrograms puts skiff and the program of the first process where nodes have them, and unpacks the bundle.
func (l *Layout) placePrograms(ctx context.Context) error {
	bin := filepath.Join(l.programs(), "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := placeFile(self, filepath.Join(bin, "skiff")); err != nil {
		return fmt.Errorf("failed to copy skiff for the nodes: %w", err)
	}
	at, _, err := bundle.Unpack(ctx, "", bundles(l.dataDir))
	if err != nil {
		return err
	}
	pause, err := fileOfImage(filepath.Join(at, "images", "pause.tar"), "pause")
	if err != nil {
		return fmt.Errorf("failed to extract the program of the nodes' first process: %w", err)
	}
	return writeFile(filepath.Join(bin, "init"), pause, 0o755)
}

func bundles(dataDir string) string { return filepath.Join(dataDir, "bundle") }

// shareBundle gives a node the unpacked bundle by hard links, which take no space, and share the memory of programs.
func (l *Layout) shareBundle(n Node) error {
	if n.Server() {
		return nil // the node has it
	}
	entries, err := os.ReadDir(bundles(l.dataDir))
	if err != nil {
		return err
	}
	to := bundles(l.data(n))
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		target := filepath.Join(to, e.Name())
		if !e.IsDir() || fileExists(target) || !fileExists(filepath.Join(bundles(l.dataDir), e.Name(), "bundle.json")) {
			continue
		}
		part, err := os.MkdirTemp(to, "part-")
		if err != nil {
			return err
		}
		err = linkTree(filepath.Join(bundles(l.dataDir), e.Name()), part)
		if err == nil {
			err = errors.Join(os.Chmod(part, 0o755), os.Rename(part, target))
		}
		if err != nil {
			return errors.Join(err, os.RemoveAll(part))
		}
	}
	return nil
}

func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil || rel == "." {
			return err
		}
		if e.IsDir() {
			return os.Mkdir(filepath.Join(to, rel), 0o755)
		}
		return os.Link(path, filepath.Join(to, rel))
	})
}

// placeFile puts a file at another path too: by a hard link, or by a copy where that fails.
func placeFile(from, to string) error {
	is, err := os.Stat(from)
	if err != nil {
		return err
	}
	if was, err := os.Stat(to); err == nil && (os.SameFile(is, was) || is.Size() == was.Size() && is.ModTime().Equal(was.ModTime())) {
		return nil
	}
	part := to + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if os.Link(from, part) != nil {
		if err := copyFile(from, part, is); err != nil {
			return err
		}
	}
	return os.Rename(part, to)
}

func copyFile(from, to string, info fs.FileInfo) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), os.Chtimes(to, info.ModTime(), info.ModTime()))
}

// maxProgram bounds the size of a program in an image.
const maxProgram = 16 << 20

// fileOfImage returns a file of an image in an archive: an OCI layout, one of whose blobs is the layer with the file.
func fileOfImage(archive, name string) ([]byte, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for blobs := tar.NewReader(f); ; {
		if _, err := blobs.Next(); errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s has no %s", archive, name)
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", archive, err)
		}
		blob, err := io.ReadAll(io.LimitReader(blobs, maxProgram))
		if err != nil {
			return nil, err
		}
		var layer io.Reader = bytes.NewReader(blob)
		if z, err := gzip.NewReader(layer); err == nil {
			layer = z
		} else {
			layer = bytes.NewReader(blob)
		}
		for files := tar.NewReader(layer); ; {
			h, err := files.Next()
			if err != nil {
				break // the blob is not a layer, or has no more files
			}
			if path.Clean("/"+h.Name) == "/"+name && h.Typeflag == tar.TypeReg {
				return io.ReadAll(io.LimitReader(files, maxProgram))
			}
		}
	}
}
