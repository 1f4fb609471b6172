package pki

import (
	"crypto/tls"
	"crypto/x509"
)

// ServerConfig is how a server shows a leaf and asks its clients for theirs, which the given authorities should have signed. Whether they
// have is for who authenticates requests to verify, against Pool: a client with a bad certificate is told so in a response. base is the
// rest of the configuration; it must name the protocols.
//
// Each new connection gets what is current, those there are go on.
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

// trusted is what the authorities trust together. A server sends their names, for clients with several certificates to choose.
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

// ClientConfig is how to connect right now with a leaf to servers that an authority has signed for. It serves one connection: the next may
// find that both have been renewed.
func (m *Manager) ClientConfig(leaf, authority string) (*tls.Config, error) {
	certificate, err := m.Certificate(leaf)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*certificate}, RootCAs: m.Pool(authority), Time: m.o.Now}, nil
}
