package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
)

// setting is what containerd is configured with.
type setting struct {
	Paths
	Pause         string
	Debug         bool
	SystemdCgroup bool
	// RestrictOOM is that scores cannot be lowered here: the capability for it is missing.
	RestrictOOM bool
}

// configuration is containerd's. Plugins that nothing here uses are off: some of them write to places outside skiff's, and all cost memory
// and time at start. Statistics are collected as often as the kubelet asks for them, not every second. Network namespaces are under the
// state directory, so that they can be told from others'. Layers are kept in skiff's registry, not here too.
var configuration = template.Must(template.New("").Funcs(template.FuncMap{"q": quote}).Parse(`version = 4
root = {{q .Root}}
state = {{q .State}}
imports = []
oom_score = {{if .RestrictOOM}}0{{else}}-999{{end}}
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
  level = {{if .Debug}}"debug"{{else}}"warn"{{end}}

[plugins."io.containerd.server.v1.grpc"]
  address = {{q .Socket}}

[plugins."io.containerd.server.v1.ttrpc"]
  address = {{q (print .Socket ".ttrpc")}}

[plugins."io.containerd.shim.v1.manager"]
  socket_dir = {{q .Shims}}

[plugins."io.containerd.nri.v1.nri"]
  disable = true

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  use_local_image_pull = true
  discard_unpacked_layers = true
  stats_collect_period = 15

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = {{q .Pause}}

[plugins."io.containerd.cri.v1.images".registry]
  config_path = {{q .Registries}}

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {{.RestrictOOM}}
  netns_mounts_under_state_dir = true
  stats_collect_period = "15s"
  enable_criu = false

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = [{{range $i, $d := .CNIBin}}{{if $i}}, {{end}}{{q $d}}{{end}}]
  conf_dir = {{q .CNIConf}}
  use_internal_loopback = true

[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  runtime_path = {{q (print .Bundle "/bin/containerd-shim-runc-v2")}}

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = {{q (print .Bundle "/bin/runc")}}
  Root = {{q .Runc}}
  SystemdCgroup = {{.SystemdCgroup}}
`))

// quote writes a TOML string. What Go escapes otherwise than TOML (\x) does not occur in paths that are printable.
func quote(s string) string { return strconv.Quote(s) }

func (s setting) text() ([]byte, error) {
	var out bytes.Buffer
	err := configuration.Execute(&out, s)
	return out.Bytes(), err
}

// write writes the configuration to a file named by its content: who runs with another is told by its command line.
func (s setting) write() (string, error) {
	data, err := s.text()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	path := filepath.Join(s.Run, "containerd-"+hex.EncodeToString(sum[:6])+".toml")
	return path, replaceFile(path, data)
}

// writeHosts makes skiff's registry the first that is asked for any image. containerd reads it at every pull; registries that somebody
// configured in a folder of their own beside it are not asked this way.
func writeHosts(p Paths, registry string) error {
	dir := filepath.Join(p.Registries, "_default")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := "[host." + quote("http://"+registry) + "]\n  capabilities = [\"pull\", \"resolve\"]\n"
	return replaceFile(filepath.Join(dir, "hosts.toml"), []byte(text))
}

// replaceFile writes a file that is whole at any time.
func replaceFile(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	part := path + ".part"
	if err := os.WriteFile(part, data, 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// printable reports whether a path can be written into a configuration as it is.
func printable(path string) bool {
	return !strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f || r == '�' })
}
