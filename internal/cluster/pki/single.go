package pki

import (
	"crypto/tls"
	"log/slog"
	"os"
	"time"
)

// LoadAuthority reads ca.crt and ca.key from a directory, or makes them. It is for those who need one authority and no renewal, as tests do.
func LoadAuthority(dir string, now time.Time) (*Authority, error) {
	return once(dir, now, func(l *reconciliation) (*Authority, error) { return l.authority(CA) })
}

// Serving returns a serving certificate for the given names and addresses, from NAME.crt and NAME.key in a directory, making
// it if it is missing, expires soon or lacks one of them.
func (a *Authority) Serving(dir, name string, names []string, now time.Time) (tls.Certificate, error) {
	p, err := once(dir, now, func(l *reconciliation) (*pair, error) {
		return l.leaf(Leaf{Name: name, Authority: CA, User: "kube-apiserver", Hosts: hosts(names)}, a)
	})
	if err != nil {
		return tls.Certificate{}, err
	}
	return p.tls, nil
}

// LoadServer reads an authority that signs for one server alone, and the server's certificate, from a directory, and makes those that are missing, cut short or
// to be renewed. The files are named by the authority and the leaf. The server calls it again to renew both.
func LoadServer(dir string, leaf Leaf, now time.Time) (*Authority, tls.Certificate, error) {
	leaf.Hosts = hosts(leaf.Hosts)
	var a *Authority
	p, err := once(dir, now, func(l *reconciliation) (p *pair, err error) {
		if a, err = l.authority(leaf.Authority); err != nil {
			return nil, err
		}
		return l.leaf(leaf, a)
	})
	if err != nil {
		return nil, tls.Certificate{}, err
	}
	return a, p.tls, nil
}

func once[T any](dir string, now time.Time, do func(*reconciliation) (T, error)) (T, error) {
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
	l := &reconciliation{dir: dir, now: now, authorityLife: defaultAuthorityLife, leafLife: defaultLeafLife, log: slog.Default()}
	made, err := do(l)
	if err != nil {
		return none, err
	}
	return made, writeAll(l.files)
}
