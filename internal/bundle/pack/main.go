package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"skiff/internal/images"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return errors.New("usage: pack tree|file|image|notices ...")
	}
	switch what := args[0]; {
	case what == "tree" && len(args) == 3:
		return compress(args[2], func(w io.Writer) error { return tree(w, args[1]) })
	case what == "file" && len(args) == 3:
		return compress(args[2], func(w io.Writer) error { return copyFile(w, args[1]) })
	case what == "image" && len(args) == 4:
		return image(args[1], args[2], args[3])
	case what == "notices":
		return compress(args[2], func(w io.Writer) error { return notices(w, args[1], args[3:]) })
	}
	return fmt.Errorf("%q is not understood", args)
}

// compress writes a file that appears when it is complete.
func compress(out string, write func(io.Writer) error) error {
	f, err := os.Create(out + ".part")
	if err != nil {
		return err
	}
	z, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(8<<20))
	if err != nil {
		return err
	}
	if err := errors.Join(write(z), z.Close(), f.Close()); err != nil {
		return err
	}
	return os.Rename(out+".part", out)
}

// tree writes an archive without times and owners. WalkDir goes by name, so the order is always the same.
func tree(w io.Writer, dir string) error {
	t := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if e.IsDir() {
			return t.WriteHeader(&tar.Header{Name: rel + "/", Typeflag: tar.TypeDir, Mode: 0o755})
		}
		mode := int64(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		if err := t.WriteHeader(&tar.Header{Name: rel, Typeflag: tar.TypeReg, Mode: mode, Size: info.Size()}); err != nil {
			return err
		}
		return copyFile(t, path)
	})
	return errors.Join(err, t.Close())
}

func copyFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

func image(dir, name, out string) error {
	n, err := images.ParseName(name)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "pack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	store, err := images.Open(tmp)
	if err != nil {
		return err
	}
	if _, err := store.Build(context.Background(), dir, "", n); err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(store.Save(context.Background(), f, n), f.Close())
}
