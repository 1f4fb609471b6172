package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
)

// runDir is the directory of sockets and of what need not survive a reboot.
const runDir = "/run/skiff"

// Paths are the files and directories of a node's runtime.
type Paths struct {
	Bundle     string // the unpacked bundle
	Root       string // containerd's images, snapshots and metadata
	Run        string // what need not survive a reboot
	State      string // containerd's state: mounts and network namespaces of containers
	Socket     string // containerd's socket, on which it serves CRI
	Runc       string // runc's state
	Shims      string // the shims' sockets
	Registries string // configuration of registries: containerd's certs.d
	CNIConf    string
	CNIBin     []string
	Log        string
	Cgroup     string // cgroup of containerd and the shims, in every hierarchy
	Seccomp    string // seccomp profile of pause
}

// pathsOf returns the paths of a data directory. They are the same at each start, so that what an earlier process left is found.
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

// bundles returns the directory in which bundles are unpacked.
func bundles(dataDir string) string { return filepath.Join(dataDir, "bundle") }

// Socket returns the socket of the containerd of a data directory.
func Socket(dataDir string) string { return pathsOf(dataDir).Socket }

// NetworkSocket returns the socket on which skiff serves the bundled CNI plugin, which attaches pods to the network.
func NetworkSocket(dataDir string) (string, error) {
	dir, err := Resolve(dataDir)
	return filepath.Join(pathsOf(dir).Run, "network", "cni.sock"), err
}
