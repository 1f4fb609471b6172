package kubeconfig

import (
	"bytes"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"skiff/internal/cluster/datadir"
)

// AdminPath returns the path of the administrator's kubeconfig in a data directory.
func AdminPath(dataDir string) string { return filepath.Join(dataDir, "admin.kubeconfig") }

// Write writes a kubeconfig with one context, which is the current one. Only its owner may read it. A file that has this content already is not written again.
func Write(file, name string, cluster *api.Cluster, user *api.AuthInfo) error {
	config := api.NewConfig()
	config.Clusters[name], config.AuthInfos[name] = cluster, user
	config.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	if existing, err := os.ReadFile(file); err == nil && bytes.Equal(existing, data) {
		return os.Chmod(file, 0o600)
	}
	return datadir.WriteFile(file, data)
}

// IsCurrentContext reports whether a context is the current one of the user's kubeconfig.
func IsCurrentContext(name string) bool {
	user, err := clientcmd.NewDefaultPathOptions().GetStartingConfig()
	return err == nil && user.CurrentContext == name
}
