package join

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// What the files are called; those of the server's own node are called the same.
const (
	clientName  = "kubelet-client"
	servingName = "kubelet"
	trustFile   = "ca.crt"
	partSuffix  = ".part"
	// firstKeyName is the key that a machine is joining with.
	firstKeyName = clientName + ".key.joining"
)

// held is a certificate in use.
type held struct {
	tls *tls.Certificate
	due time.Time // when it is renewed
}

// hold reads a certificate and decides when it is renewed: when 70 to 90 % of its life are over.
func hold(certPEM, keyPEM []byte) (*held, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	life := pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore)
	return &held{tls: &pair, due: pair.Leaf.NotBefore.Add(time.Duration(float64(life) * (0.7 + 0.2*rand.Float64())))}, nil
}

// load finds what an earlier start left. It reports whether the machine is in the cluster.
func (id *Identity) load() (bool, error) {
	if err := os.MkdirAll(id.o.Dir, 0o700); err != nil {
		return false, err
	}
	bundle, err := os.ReadFile(id.path(trustFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := id.setTrust(bundle); err != nil {
		return false, nil // it was cut short
	}
	id.knownHere = id.o.Token == nil || id.pinned(id.o.Token.Pin)
	client, err := id.read(clientName)
	if client == nil || err != nil {
		return false, err
	}
	if name := client.tls.Leaf.Subject.CommonName; name != nodePrefix+id.o.Node {
		return false, fmt.Errorf("%s holds the certificate of %s, not of node %s: use another --data-dir, or forget that node with \"skiff down --purge\"", id.o.Dir, name, id.o.Node)
	}
	if !id.knownHere {
		return false, nil // of another cluster than the one to join now
	}
	if !id.o.Now().Before(client.tls.Leaf.NotAfter) {
		id.o.Log.Warn("the node's certificate has ended", "at", client.tls.Leaf.NotAfter)
		return false, nil
	}
	id.client.Store(client)
	serving, err := id.read(servingName)
	if err != nil {
		return false, err
	}
	if serving != nil && id.o.Now().Before(serving.tls.Leaf.NotAfter) && id.fits(serving) {
		id.serving.Store(serving)
	}
	return true, nil
}

// fits says whether a certificate is for all names and addresses that there are now.
func (id *Identity) fits(serving *held) bool {
	for _, host := range id.o.Hosts {
		if serving.tls.Leaf.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

func (id *Identity) pinned(pin Pin) bool {
	certificates, err := parseBundle(id.Bundle())
	for _, c := range certificates {
		if pinOf(c) == pin {
			return true
		}
	}
	return err != nil
}

// read reads a pair. What is missing, or cut short by a crash, is as if it had never been.
func (id *Identity) read(name string) (*held, error) {
	certPEM, certErr := os.ReadFile(id.path(name + ".crt"))
	keyPEM, keyErr := os.ReadFile(id.path(name + ".key"))
	for _, err := range []error{certErr, keyErr} {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	pair, err := hold(certPEM, keyPEM)
	if err != nil {
		id.o.Log.Warn("a certificate cannot be used", "file", id.path(name+".crt"), "error", err)
		return nil, nil
	}
	return pair, nil
}

// keep puts a new pair into use, and into files: the key first, so that a crash in between leaves two that do not fit, which is as good as none. bundle, if
// there is one, is whom to trust from now on.
func (id *Identity) keep(name string, certPEM, keyPEM, bundle []byte) error {
	pair, err := hold(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("the certificate that was signed: %w", err)
	}
	if len(bundle) > 0 {
		if err := id.write(trustFile, bundle); err != nil {
			return err
		}
	}
	if err := errors.Join(id.write(name+".key", keyPEM), id.write(name+".crt", certPEM)); err != nil {
		return err
	}
	if name == clientName {
		id.client.Store(pair)
		id.connections.CloseAll()
	} else {
		id.serving.Store(pair)
	}
	return nil
}

func (id *Identity) path(name string) string { return filepath.Join(id.o.Dir, name) }

// write replaces a file, which is whole at every moment and on the disk when it returns.
func (id *Identity) write(name string, data []byte) error {
	part := id.path(name + partSuffix)
	f, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(part, id.path(name))
}
