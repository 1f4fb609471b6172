package pki

import (
	"crypto/tls"
	"crypto/x509"
)

// ServerConfig returns the configuration of a server with a leaf, which requests client certificates of the given authorities. Whether they
// have signed them is verified by the authentication of requests, against Pool: a client with a bad certificate gets a response that says so. base is the
// rest of the configuration; it must name the protocols.
//
// New connections get the current certificate; open ones are not affected.
func (m *Manager) ServerConfig(base *tls.Config, leaf string, clients ...string) *tls.Config {
	base = base.Clone()
	base.Time = m.o.Now
	if len(clients) > 0 {
		base.ClientAuth = tls.RequestClientCert
	}
	outer := base.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		certificate, err := m.Certificate(leaf)
		if err != nil {
			return nil, err
		}
		c := base.Clone()
		c.Certificates = []tls.Certificate{*certificate}
		if len(clients) > 0 {
			c.ClientCAs = m.trusted(clients)
		}
		return c, nil
	}
	return outer
}

// trusted returns the certificates of several authorities. A server sends their names, by which clients with several certificates choose.
func (m *Manager) trusted(names []string) *x509.CertPool {
	pool := x509.NewCertPool()
	s := m.state()
	for _, name := range names {
		if a := s.authorities[name]; a != nil {
			for _, c := range a.certs {
				pool.AddCert(c)
			}
		}
	}
	return pool
}

// ClientConfig returns the configuration of a client with a leaf, for servers of an authority. It is for one connection: the next may
// find that both have been renewed.
func (m *Manager) ClientConfig(leaf, authority string) (*tls.Config, error) {
	certificate, err := m.Certificate(leaf)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*certificate}, RootCAs: m.Pool(authority), Time: m.o.Now}, nil
}
