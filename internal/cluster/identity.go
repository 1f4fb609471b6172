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

// openCerts makes or mends the certificates of the cluster.
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

// certsChanged renews what is made of certificates.
func (s *Server) certsChanged(context.Context, []string) error {
	if !s.announced.Load() {
		return nil // the kubeconfigs are about to be written
	}
	return s.kubeconfigs().write()
}

// authentication is what flags say of authentication, on top of the cluster's own authorities and keys.
func (s *Server) authentication() (authnconfig.Options, error) {
	o := s.config.Authentication
	own, err := clientcert.FromFile(s.certs.AuthorityFile(pki.CA), clock.RealClock{}, s.config.Log)
	if err != nil {
		return o, err
	}
	o.ClientCAs = own
	if o.ClientCAFile != "" {
		given, err := clientcert.FromFile(o.ClientCAFile, clock.RealClock{}, s.config.Log)
		if err != nil {
			return o, fmt.Errorf("--client-ca-file: %w", err)
		}
		o.ClientCAFile, o.ClientCAs = "", both(own, given)
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

// both trusts two sets of authorities.
func both(a, b clientcert.CAs) clientcert.CAs {
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
