package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"skiff/internal/images"
)

// containerdConfig holds the values of containerd's configuration.
type containerdConfig struct {
	Paths
	Pause         string
	Debug         bool
	SystemdCgroup bool
	// RestrictOOM says that OOM scores cannot be lowered, because the capability for it is missing.
	RestrictOOM bool
}

// configuration is containerd's configuration. Plugins that nothing here uses are off: some of them write outside skiff's directories, and all cost memory
// and time at start. Statistics are collected as often as the kubelet asks for them, not every second. Network namespaces are under the
// state directory, so that they can be told from others'. Layers are kept in skiff's registry and not here too. What a container had on disk is
// removed soon after the container, not after a hundred more changes: others may need the space.
const configuration = `version = 4
root = $Root
state = $State
imports = []
oom_score = $OOMScore
disabled_plugins = [
  "io.containerd.differ.v1.erofs",
  "io.containerd.image-verifier.v1.bindir",
  "io.containerd.internal.v1.opt",
  "io.containerd.metrics.v1.grpc-otel",
  "io.containerd.metrics.v1.grpc-prometheus",
  "io.containerd.monitor.container.v1.restart",
  "io.containerd.monitor.task.v1.cgroups",
  "io.containerd.mount-handler.v1.erofs",
  "io.containerd.server.v1.debug",
  "io.containerd.server.v1.grpc-tcp",
  "io.containerd.server.v1.metrics",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.native",
]
required_plugins = ["io.containerd.grpc.v1.cri"]

[debug]
  level = $Level

[plugins."io.containerd.gc.v1.scheduler"]
  deletion_threshold = 1
  schedule_delay = "2s"

[plugins."io.containerd.server.v1.grpc"]
  address = $Socket

[plugins."io.containerd.server.v1.ttrpc"]
  address = $TTRPC

[plugins."io.containerd.shim.v1.manager"]
  socket_dir = $Shims

[plugins."io.containerd.nri.v1.nri"]
  disable = true

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  use_local_image_pull = true
  discard_unpacked_layers = true
  stats_collect_period = 15

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = $Pause

[plugins."io.containerd.cri.v1.images".registry]
  config_path = $Registries

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = $RestrictOOM
  netns_mounts_under_state_dir = true
  stats_collect_period = "15s"
  enable_criu = false

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = [$CNIBin]
  conf_dir = $CNIConf
  use_internal_loopback = true

[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  runtime_path = $Shim

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = $Program
  Root = $Runc
  SystemdCgroup = $SystemdCgroup
`

// quote writes a TOML string. What Go escapes otherwise than TOML (\x) does not occur in paths that are printable.
func quote(s string) string { return strconv.Quote(s) }

// text returns the configuration. It does not use package text/template, which finds methods by name at run time, so that all methods of
// all types would have to be in the program, 25 MB of them.
func (s containerdConfig) text() []byte {
	score, level := "-999", "warn"
	if s.RestrictOOM {
		score = "0"
	}
	if s.Debug {
		level = "debug"
	}
	var plugins []string
	for _, dir := range s.CNIBin {
		plugins = append(plugins, quote(dir))
	}
	values := map[string]string{
		"Root": quote(s.Root), "State": quote(s.State), "OOMScore": score, "Level": quote(level), "Socket": quote(s.Socket), "TTRPC": quote(s.Socket + ".ttrpc"),
		"Shims": quote(s.Shims), "Pause": quote(s.Pause), "Registries": quote(s.Registries), "RestrictOOM": strconv.FormatBool(s.RestrictOOM),
		"CNIBin": strings.Join(plugins, ", "), "CNIConf": quote(s.CNIConf), "Shim": quote(s.Bundle + "/bin/containerd-shim-runc-v2"), "Program": quote(s.Bundle + "/bin/runc"),
		"Runc": quote(s.Runc), "SystemdCgroup": strconv.FormatBool(s.SystemdCgroup),
	}
	return []byte(os.Expand(configuration, func(name string) string { return values[name] }))
}

// write writes the configuration to a file named by its hash, so that the command line of a containerd says which configuration it has.
func (s containerdConfig) write() (string, error) {
	data := s.text()
	sum := sha256.Sum256(data)
	path := filepath.Join(s.Run, "containerd-"+hex.EncodeToString(sum[:6])+".toml")
	return path, replaceFile(path, data)
}

// writeHosts makes skiff's registry the first mirror of every registry. containerd reads the file at every pull; registries that somebody
// configured in a directory of their own beside it have no mirror. The registry is trusted only with a certificate of its own authority, and the file
// holds the password that it asks for, so nobody else may read it.
func writeHosts(p Paths, registry images.Access) error {
	dir := filepath.Join(p.Registries, "_default")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	host := "host." + quote("https://"+registry.Address)
	authorization := "Basic " + base64.StdEncoding.EncodeToString([]byte(registry.Username+":"+registry.Password))
	text := "[" + host + "]\n  capabilities = [\"pull\", \"resolve\"]\n  ca = " + quote(registry.CAFile) + "\n[" + host + ".header]\n  Authorization = " + quote(authorization) + "\n"
	return replaceFileMode(filepath.Join(dir, "hosts.toml"), []byte(text), 0o600)
}

// replaceFile replaces a file by a rename, so that readers see the old content or the new.
func replaceFile(path string, data []byte) error { return replaceFileMode(path, data, 0o644) }

// replaceFileMode is replaceFile with the mode that the file has afterwards.
func replaceFileMode(path string, data []byte, mode os.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return os.Chmod(path, mode)
	}
	part := path + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) { // a file that exists would keep its mode
		return err
	}
	if err := os.WriteFile(part, data, mode); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// printable reports whether a path can be written into a configuration as it is.
func printable(path string) bool {
	return !strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f || r == '�' })
}
