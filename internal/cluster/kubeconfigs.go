package cluster

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	api "k8s.io/client-go/tools/clientcmd/api"

	"skiff/internal/cluster/datadir"
	"skiff/internal/cluster/kubeconfig"
	"skiff/internal/cluster/pki"
)

// KubeconfigPath returns the path of the administrator's kubeconfig in a data directory. It is written once the API answers.
func KubeconfigPath(dataDir string) string { return kubeconfig.AdminPath(dataDir) }

// componentKubeconfigs maps the kubeconfigs of components that reach the API from a process of their own to the certificate that each uses.
var componentKubeconfigs = map[string]string{
	"controller-manager.kubeconfig": pki.ControllerManager,
	"scheduler.kubeconfig":          pki.Scheduler,
	"proxy.kubeconfig":              pki.Proxy,
	"kubelet.kubeconfig":            pki.KubeletClient,
}

// isKubeconfig reports whether a file in a data directory is one that kubeconfigs writes.
func isKubeconfig(name string) bool {
	final := strings.TrimSuffix(name, datadir.PartSuffix)
	_, component := componentKubeconfigs[final]
	return component || final == KubeconfigPath("") || strings.HasPrefix(name, kubeconfig.RecordFile)
}

// kubeconfigs writes the kubeconfigs of a cluster into its data directory.
type kubeconfigs struct {
	dataDir, name, url string
	ca                 []byte // the authority of the API's certificate, if that is not the cluster's own
	certs              *pki.Manager
	log                *slog.Logger
}

// write brings all kubeconfigs up to date, the administrator's first: its presence says that the API answers. It is called once that is so, and whenever a
// certificate was renewed.
//
// The administrator's kubeconfig holds the certificates themselves, so that it can be copied elsewhere. Those of components name the files of the
// certificates, which client-go reads again by itself: a component follows a renewal without a restart.
func (k *kubeconfigs) write() error {
	if err := k.writeAdmin(); err != nil {
		return fmt.Errorf("failed to write the administrator's kubeconfig: %w", err)
	}
	for file, leaf := range componentKubeconfigs {
		if err := k.writeComponent(file, leaf); err != nil {
			return fmt.Errorf("failed to write %s: %w", file, err)
		}
	}
	for _, err := range kubeconfig.Refresh(k.dataDir) {
		k.log.Warn("failed to update a kubeconfig that the cluster was added to", "err", err)
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
	return kubeconfig.Write(KubeconfigPath(k.dataDir), k.name, &api.Cluster{Server: k.url, CertificateAuthorityData: ca},
		&api.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key})
}

// writeComponent writes the kubeconfig of a component, unless the cluster has no certificate for it: one without a node has none for the kubelet.
func (k *kubeconfigs) writeComponent(file, leaf string) error {
	if _, err := k.certs.Certificate(leaf); err != nil {
		return nil
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
	return kubeconfig.Write(filepath.Join(k.dataDir, file), k.name, &api.Cluster{Server: k.url, CertificateAuthority: caFile, CertificateAuthorityData: k.ca},
		&api.AuthInfo{ClientCertificate: certFile, ClientKey: keyFile})
}
