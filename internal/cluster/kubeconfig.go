package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"
)

// KubeconfigPath is where the administrator's kubeconfig of a data directory is.
func KubeconfigPath(dataDir string) string { return filepath.Join(dataDir, "admin.kubeconfig") }

func (s *Server) writeKubeconfig() error {
	config := api.NewConfig()
	name := s.config.Name
	config.Clusters[name] = &api.Cluster{Server: s.url, CertificateAuthorityData: s.ca}
	config.AuthInfos[name] = &api.AuthInfo{Token: s.token}
	config.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	// By rename: that the file is there says that the API answers, so it must be whole from the first moment.
	file := KubeconfigPath(s.config.DataDir)
	err := clientcmd.WriteToFile(*config, file+".part")
	if err == nil {
		err = os.Rename(file+".part", file)
	}
	if err != nil {
		return fmt.Errorf("writing the administrator's kubeconfig: %w", err)
	}
	return nil
}

// MergeKubeconfig adds a cluster's context to the user's own kubeconfig and makes it current, leaving the rest as it is.
func MergeKubeconfig(dataDir, name string) (file string, err error) {
	admin, err := clientcmd.LoadFromFile(KubeconfigPath(dataDir))
	if err != nil {
		return "", err
	}
	return editUserConfig(func(user *api.Config) bool {
		user.Clusters[name], user.AuthInfos[name], user.Contexts[name] = admin.Clusters[name], admin.AuthInfos[name], admin.Contexts[name]
		user.CurrentContext = name
		return true
	})
}

// ForgetKubeconfig removes a cluster's context from the user's kubeconfig. One of the same name that is another cluster's stays.
func ForgetKubeconfig(dataDir, name string) error {
	admin, err := clientcmd.LoadFromFile(KubeconfigPath(dataDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it never came up, so it was never added
	}
	if err != nil {
		return err
	}
	own := admin.Clusters[name]
	_, err = editUserConfig(func(user *api.Config) bool {
		there := user.Clusters[name]
		if own == nil || there == nil || there.Server != own.Server || !bytes.Equal(there.CertificateAuthorityData, own.CertificateAuthorityData) {
			return false
		}
		delete(user.Clusters, name)
		delete(user.AuthInfos, name)
		delete(user.Contexts, name)
		if user.CurrentContext == name {
			user.CurrentContext = ""
		}
		return true
	})
	return err
}

// editUserConfig changes the user's kubeconfig, if edit says there is something to change.
func editUserConfig(edit func(*api.Config) bool) (string, error) {
	file := clientcmd.RecommendedHomeFile
	if env := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); env != "" {
		file = filepath.SplitList(env)[0]
	}
	user, err := clientcmd.LoadFromFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		user, err = api.NewConfig(), nil
	}
	if err != nil {
		return file, fmt.Errorf("reading %s: %w", file, err)
	}
	if !edit(user) {
		return file, nil
	}
	if len(user.Clusters)+len(user.Contexts)+len(user.AuthInfos) == 0 {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
		return file, nil
	}
	return file, clientcmd.WriteToFile(*user, file)
}
