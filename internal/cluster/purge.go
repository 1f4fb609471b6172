package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"skiff/internal/cluster/datadir"
	"skiff/internal/cluster/kubeconfig"
	"skiff/internal/cluster/process"
)

// Purge removes the data of a cluster that does not run, and its context from the kubeconfigs that it was added to.
func Purge(dataDir, name string) error {
	if err := process.CheckUnused(dataDir); err != nil {
		return err
	}
	if err := kubeconfig.Remove(dataDir, name); err != nil {
		return err
	}
	entries, err := os.ReadDir(dataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	foreignFiles := 0
	for _, e := range entries { // a mistyped --data-dir must not cost somebody a home directory
		if !madeBySkiff(e.Name()) {
			foreignFiles++
		} else if err := os.RemoveAll(filepath.Join(dataDir, e.Name())); err != nil {
			return err
		}
	}
	if foreignFiles > 0 {
		return fmt.Errorf("%s also holds what is not skiff's, which is left there", dataDir)
	}
	return os.Remove(dataDir)
}

// madeBySkiff reports whether skiff makes a file of this name in a data directory.
func madeBySkiff(name string) bool {
	switch final := strings.TrimSuffix(name, datadir.PartSuffix); final {
	case agentStateFile, AgentTokenFile, "nodes.json":
		return true
	}
	switch name {
	case "kubelet", "volumes", "log", "images", "registry", "cni", "containerd", "bundle": // of the node
		return true
	case "nodes", "program": // of local nodes
		return true
	case "etcd", "etcd.restored", "pki", encryptionDir, usageDir, process.PIDFileName:
		return true
	}
	return strings.HasPrefix(name, "etcd.before-") || isKubeconfig(name) || process.IsLogFile(name)
}
