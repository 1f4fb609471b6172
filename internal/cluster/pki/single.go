package pki

import (
	"crypto/tls"
	"log/slog"
	"os"
	"time"
)

// LoadAuthority reads ca.crt and ca.key from a directory, or makes them. It serves who needs one authority and no renewal, as tests do.
func LoadAuthority(dir string, now time.Time) (*Authority, error) {
	return LoadAuthorityNamed(dir, CA, now)
}

// LoadAuthorityNamed reads NAME.crt and NAME.key from a directory, or makes them. The caller loads it again to renew it.
func LoadAuthorityNamed(dir, name string, now time.Time) (*Authority, error) {
	return once(dir, now, func(l *look) (*Authority, error) { return l.authority(name) })
}

// Serving returns the certificate a server shows for the given names and addresses, from NAME.crt and NAME.key in a directory, making
// it if it is missing, ends soon or lacks one of them.
func (a *Authority) Serving(dir, name string, names []string, now time.Time) (tls.Certificate, error) {
	return a.ServingAs(dir, name, "kube-apiserver", names, now)
}

// ServingAs is Serving for a server with another common name than the API server's.
func (a *Authority) ServingAs(dir, name, commonName string, names []string, now time.Time) (tls.Certificate, error) {
	p, err := once(dir, now, func(l *look) (*pair, error) {
		return l.leaf(Leaf{Name: name, Authority: CA, User: commonName, Hosts: hosts(names)}, a)
	})
	if err != nil {
		return tls.Certificate{}, err
	}
	return p.tls, nil
}

func once[T any](dir string, now time.Time, do func(*look) (T, error)) (T, error) {
	var none T
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return none, err
	}
	unlock, err := lockDir(dir)
	if err != nil {
		return none, err
	}
	defer unlock()
	if err := prepare(dir); err != nil {
		return none, err
	}
	l := &look{dir: dir, now: now, authorityLife: defaultAuthorityLife, leafLife: defaultLeafLife, log: slog.Default()}
	made, err := do(l)
	if err != nil {
		return none, err
	}
	return made, writeAll(l.files)
}
