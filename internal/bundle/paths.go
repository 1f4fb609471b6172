package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
)

// runDir is where sockets and what need not survive a reboot are.
const runDir = "/run/skiff"

// Paths are where things of a node's runtime are.
type Paths struct {
	Bundle     string // what was unpacked
	Root       string // containerd's images, snapshots and metadata
	Run        string // all that need not survive a reboot
	State      string // containerd's state: mounts and network namespaces of containers
	Socket     string // containerd's, where CRI is served
	Runc       string // runc's state
	Shims      string // the shims' sockets
	Registries string // what is configured of registries: certs.d of containerd
	CNIConf    string
	CNIBin     []string
	Log        string
	Cgroup     string // of containerd and the shims, in every hierarchy
	Seccomp    string // a profile for pause
}

// pathsOf are the paths of a data directory. They are the same each time, so what an earlier skiff left is found.
func pathsOf(dataDir string) Paths {
	sum := sha256.Sum256([]byte(dataDir))
	id := hex.EncodeToString(sum[:4])
	run := filepath.Join(runDir, id)
	root := filepath.Join(dataDir, "containerd")
	return Paths{
		Root: root, Run: run,
		State:      filepath.Join(run, "containerd"),
		Socket:     filepath.Join(run, "containerd.sock"),
		Runc:       filepath.Join(run, "runc"),
		Shims:      filepath.Join(run, "s"),
		Registries: filepath.Join(root, "certs.d"),
		CNIConf:    filepath.Join(dataDir, "cni", "net.d"),
		Log:        filepath.Join(root, "containerd.log"),
		Cgroup:     "/skiff/" + id + "/runtime",
		Seccomp:    filepath.Join(run, "pause-seccomp.json"),
	}
}

// bundles is where bundles are unpacked.
func bundles(dataDir string) string { return filepath.Join(dataDir, "bundle") }

// Socket is where the containerd of a data directory serves.
func Socket(dataDir string) string { return pathsOf(dataDir).Socket }

// NetworkSocket is where skiff itself is asked to attach pods to the network, by the CNI plugin that comes along.
func NetworkSocket(dataDir string) (string, error) {
	dir, err := Resolve(dataDir)
	return filepath.Join(pathsOf(dir).Run, "network", "cni.sock"), err
}
