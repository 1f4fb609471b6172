package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"skiff/internal/bundle/embedded"
)

// UnpackCommand is skiff's command that unpacks the bundle into a directory and prints its path: skiff unpack DIR.
const UnpackCommand = "unpack"

// ErrNone says that this skiff was built without a bundle.
var ErrNone = errors.New("this skiff was built without containerd and what else a node needs: build it with make, or give another runtime with --container-runtime-endpoint")

// Carried reports whether this skiff was built with a bundle.
func Carried() bool { return embedded.Runtime != "" }

// Contents describes the bundle, as bundle.json in it does.
type Contents struct {
	Pause      string `json:"pause"` // name of the pause image
	Containerd string `json:"containerd"`
	Runc       string `json:"runc"`
}

// Extract unpacks the bundle of this program under a directory, unless it is there, and returns its path. It is put in place by a rename, so what is
// there is complete.
func Extract(dir string) (string, error) {
	if !Carried() {
		return "", ErrNone
	}
	to := filepath.Join(dir, embedded.RuntimeHash)
	if exists(to) {
		return to, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	part, err := os.MkdirTemp(dir, "part-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(part) // renamed by then, unless something failed
	if err := extract(strings.NewReader(embedded.Runtime), part); err != nil {
		return "", fmt.Errorf("failed to unpack the bundle into %s: %w", dir, err)
	}
	if err := os.Chmod(part, 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(part, to); err != nil && !exists(to) { // unless another process was faster
		return "", err
	}
	return to, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func extract(r io.Reader, dir string) error {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return err
	}
	defer z.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeDir {
			err = root.Mkdir(strings.TrimSuffix(h.Name, "/"), 0o755)
		} else {
			err = extractFile(root, h, t)
		}
		if err != nil {
			return err
		}
	}
}

func extractFile(root *os.Root, h *tar.Header, r io.Reader) error {
	f, err := root.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(h.Mode)&0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// Unpack unpacks the bundle under a directory in a short-lived process, and returns its path: pages of the program that were touched
// would count as this process's memory for as long as it lives. program is the skiff that carries the bundle, this one if it is empty.
func Unpack(ctx context.Context, program, dir string) (string, Contents, error) {
	at := filepath.Join(dir, embedded.RuntimeHash)
	if program != "" || embedded.RuntimeHash == "" || !exists(at) {
		if program == "" && !Carried() {
			return "", Contents{}, ErrNone
		}
		var err error
		if at, err = unpackInProcess(ctx, program, dir); err != nil {
			return "", Contents{}, err
		}
	}
	data, err := os.ReadFile(filepath.Join(at, "bundle.json"))
	if err != nil {
		return "", Contents{}, err
	}
	var c Contents
	if err := json.Unmarshal(data, &c); err != nil {
		return "", c, fmt.Errorf("failed to read %s/bundle.json: %w", at, err)
	}
	return at, c, nil
}

func unpackInProcess(ctx context.Context, program, dir string) (string, error) {
	if program == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		program = self
	}
	cmd := exec.CommandContext(ctx, program, UnpackCommand, dir)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if said := strings.TrimPrefix(strings.TrimSpace(errs.String()), "skiff: "); said != "" {
			return "", errors.New(said)
		}
		return "", fmt.Errorf("%s %s: %w", program, UnpackCommand, err)
	}
	return strings.TrimSpace(out.String()), nil
}

// Notices writes the licences of skiff's dependencies and of what is in the bundle.
func Notices(w io.Writer) error {
	if embedded.Notices == "" {
		return errors.New("this skiff was built without the notices: build it with make")
	}
	return decompress(w, embedded.Notices)
}

// Kubectl returns the path of kubectl under a directory, into which it is unpacked if it is not there.
func Kubectl(dir string) (string, error) {
	if embedded.Kubectl == "" {
		return "", errors.New("this skiff was built without kubectl: build it with make")
	}
	to := filepath.Join(dir, "kubectl-"+embedded.KubectlHash)
	if exists(to) {
		return to, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "part-")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name()) // renamed by then, unless something failed
	err = decompress(f, embedded.Kubectl)
	if err = errors.Join(err, f.Chmod(0o755), f.Close()); err != nil {
		return "", err
	}
	if old, err := filepath.Glob(filepath.Join(dir, "kubectl-*")); err == nil {
		for _, path := range old {
			os.Remove(path) // processes that run it keep it
		}
	}
	return to, os.Rename(f.Name(), to)
}

func decompress(w io.Writer, data string) error {
	z, err := zstd.NewReader(strings.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return err
	}
	defer z.Close()
	_, err = io.Copy(w, z)
	return err
}
