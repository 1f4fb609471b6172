package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"skiff/internal/images"
)

// Options say how a node's container runtime is run. The zero value of a field means its default.
type Options struct {
	DataDir string
	// Images is the store that the registry serves, and Registry is how containerd reaches it.
	Images   *images.Store
	Registry images.Access
	// CNIConf is the directory of CNI configurations: <data-dir>/cni/net.d by default. containerd takes the first file by name.
	CNIConf string
	// CNIBin are more directories of CNI plugins, after the bundled ones: /opt/cni/bin by default.
	CNIBin []string
	// Sweep, if set, is called after containerd was started, to remove what sandboxes other than these have had since before a time. Their network
	// namespaces were below the directory.
	Sweep func(sandboxes map[string]bool, before time.Time, namespaces string) error
	// Program is the skiff that carries the bundle; this one by default.
	Program string
	// Debug has containerd log at debug level.
	Debug bool
	Log   *slog.Logger
}

func (o *Options) complete() (Paths, error) {
	if o.DataDir == "" || o.Images == nil || o.Registry.Address == "" {
		return Paths{}, errors.New("a container runtime needs a data directory, images and a registry that serves them")
	}
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return Paths{}, err
	}
	dir, err := Resolve(o.DataDir)
	if err != nil {
		return Paths{}, err
	}
	if !printable(dir) || !printable(o.CNIConf) || !printable(o.Registry.CAFile) {
		return Paths{}, fmt.Errorf("one of %q has characters that cannot be written into containerd's configuration", []string{dir, o.CNIConf, o.Registry.CAFile})
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.CNIBin == nil {
		o.CNIBin = []string{"/opt/cni/bin"}
	}
	o.DataDir = dir
	p := pathsOf(dir)
	if o.CNIConf != "" {
		p.CNIConf = o.CNIConf
	}
	return p, nil
}

// Resolve returns a directory without symbolic links, as the kernel names it in /proc: by that name processes and mounts below it are found.
func Resolve(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return dir, nil
	}
	return real, err
}
