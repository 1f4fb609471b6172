package cluster

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"k8s.io/utils/clock"

	"skiff/internal/apiserver/authn/clientcert"
	authnconfig "skiff/internal/apiserver/authn/config"
	"skiff/internal/apiserver/authn/requestheader"
	"skiff/internal/cluster/pki"
)

// openCerts opens the certificates of the cluster, and makes those that are missing or no longer valid.
func (s *Server) openCerts() (*pki.Manager, error) {
	c := s.config
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "localhost"
	}
	var leaves []pki.Leaf
	if c.Node.Run {
		hostname, leaves = c.Node.Name, pki.NodeLeaves(c.Node.Name, c.Node.IP)
	}
	return pki.Open(pki.Options{Leaves: leaves, Dir: filepath.Join(c.DataDir, "pki"), NodeName: hostname, Addresses: []string{c.BindAddress, c.AdvertiseAddress},
		ServiceCIDRs: c.ServiceCIDRs, Domain: clusterDomain, SANs: c.TLSSANs, OnChange: s.certsChanged, Log: c.Log})
}

// certsChanged is called when certificates were renewed: it writes the kubeconfigs again.
func (s *Server) certsChanged(context.Context, []string) error {
	if !s.kubeconfigsWritten.Load() {
		return nil // Start writes the kubeconfigs later
	}
	return s.kubeconfigs().write()
}

// authentication returns the options of authentication: those of flags, with the cluster's own authorities and keys.
func (s *Server) authentication() (authnconfig.Options, error) {
	o := s.config.Authentication
	clusterCAs, err := clientcert.FromFile(s.certs.AuthorityFile(pki.CA), clock.RealClock{}, s.config.Log)
	if err != nil {
		return o, err
	}
	o.ClientCAs = clusterCAs
	if o.ClientCAFile != "" {
		flagCAs, err := clientcert.FromFile(o.ClientCAFile, clock.RealClock{}, s.config.Log)
		if err != nil {
			return o, fmt.Errorf("--client-ca-file: %w", err)
		}
		o.ClientCAFile, o.ClientCAs = "", joinCAs(clusterCAs, flagCAs)
	}
	if o.RequestHeaderClientCAFile == "" {
		o.RequestHeaderClientCAFile = s.certs.AuthorityFile(pki.FrontProxyCA)
		o.RequestHeader, o.RequestHeaderAllowedNames = requestheader.Standard, []string{"front-proxy-client"}
	}
	o.ExternalAddress = net.JoinHostPort(s.config.AdvertiseAddress, strconv.Itoa(s.config.Port))
	if o.ServiceAccountSigningKeyFile == "" {
		o.ServiceAccountSigningKey = s.certs.AccountSigner()
		o.ServiceAccountKeyFiles = append(o.ServiceAccountKeyFiles, filepath.Join(s.config.DataDir, "pki", "sa.pub"))
	}
	return o, nil
}

// joinCAs returns the authorities of two sources together.
func joinCAs(a, b clientcert.CAs) clientcert.CAs {
	var mu sync.Mutex
	var fromA, fromB, joined *clientcert.Bundle
	return func() *clientcert.Bundle {
		mu.Lock()
		defer mu.Unlock()
		if newA, newB := a(), b(); newA != fromA || newB != fromB {
			if bundle, err := clientcert.NewBundle(bytes.Join([][]byte{newA.PEM, newB.PEM}, []byte("\n"))); err == nil {
				fromA, fromB, joined = newA, newB, bundle
			}
		}
		return joined
	}
}

func (s *Server) kubeconfigs() *kubeconfigs {
	return &kubeconfigs{dataDir: s.config.DataDir, name: s.config.Name, url: s.url, ca: s.ca, certs: s.certs, log: s.config.Log}
}
