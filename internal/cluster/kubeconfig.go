package cluster

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"skiff/internal/cluster/pki"
)

// KubeconfigPath is where the administrator's kubeconfig of a data directory is.
func KubeconfigPath(dataDir string) string { return filepath.Join(dataDir, "admin.kubeconfig") }

// componentKubeconfigs are the files of those who reach the API from a process of their own, by the certificate each uses.
var componentKubeconfigs = map[string]string{
	"controller-manager.kubeconfig": pki.ControllerManager,
	"scheduler.kubeconfig":          pki.Scheduler,
	"proxy.kubeconfig":              pki.Proxy,
	"kubelet.kubeconfig":            pki.KubeletClient,
}

// ownKubeconfig reports whether a file in a data directory is one that kubeconfigs writes.
func ownKubeconfig(name string) bool {
	_, component := componentKubeconfigs[strings.TrimSuffix(name, partSuffix)]
	return component || strings.TrimSuffix(name, partSuffix) == KubeconfigPath("") || strings.HasPrefix(name, mergedRecord)
}

const partSuffix = ".part" // of a file not yet in its place

// kubeconfigs are the files that say how to reach a cluster.
type kubeconfigs struct {
	dataDir, name, url string
	ca                 []byte // what to trust, if the API does not show a certificate of the cluster's own authority
	certs              *pki.Manager
	log                *slog.Logger
}

// write brings all files up to date, the administrator's first: that it is there says that the API answers. It is called once that is so,
// and whenever a certificate is new.
//
// The administrator's holds everything, to be copied elsewhere. Those of components point to the certificates' files, which client-go reads
// again by itself: a component follows a renewal without being restarted.
func (k *kubeconfigs) write() error {
	if err := k.writeAdmin(); err != nil {
		return fmt.Errorf("writing the administrator's kubeconfig: %w", err)
	}
	for file, leaf := range componentKubeconfigs {
		if err := k.writeComponent(file, leaf); err != nil {
			return fmt.Errorf("writing %s: %w", file, err)
		}
	}
	for _, err := range refreshMerged(k.dataDir) {
		k.log.Warn("a kubeconfig that the cluster was added to may be out of date", "err", err)
	}
	return nil
}

func (k *kubeconfigs) writeAdmin() error {
	certificate, key, err := k.certs.PEM(pki.Admin)
	if err != nil {
		return err
	}
	ca := k.ca
	if ca == nil {
		ca = k.certs.Bundle(pki.CA)
	}
	return writeKubeconfig(KubeconfigPath(k.dataDir), k.name, &api.Cluster{Server: k.url, CertificateAuthorityData: ca},
		&api.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key})
}

func (k *kubeconfigs) writeComponent(file, leaf string) error {
	if _, err := k.certs.Certificate(leaf); err != nil {
		return nil // a cluster without a node has no kubelet
	}
	var certFile, keyFile, caFile string
	certFile, keyFile = k.certs.Files(leaf)
	if k.ca == nil {
		caFile = k.certs.AuthorityFile(pki.CA)
	}
	for _, path := range []*string{&certFile, &keyFile, &caFile} { // relative, so that a data directory may be moved
		if rel, err := filepath.Rel(k.dataDir, *path); err == nil && filepath.IsLocal(rel) {
			*path = rel
		}
	}
	return writeKubeconfig(filepath.Join(k.dataDir, file), k.name, &api.Cluster{Server: k.url, CertificateAuthority: caFile, CertificateAuthorityData: k.ca},
		&api.AuthInfo{ClientCertificate: certFile, ClientKey: keyFile})
}

func writeKubeconfig(file, name string, cluster *api.Cluster, user *api.AuthInfo) error {
	config := api.NewConfig()
	config.Clusters[name], config.AuthInfos[name] = cluster, user
	config.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	if there, err := os.ReadFile(file); err == nil && bytes.Equal(there, data) {
		return os.Chmod(file, 0o600)
	}
	return writePrivate(file, data)
}
