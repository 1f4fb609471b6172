package join

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Names of the files. Those of the server's own node have the same.
const (
	clientName  = "kubelet-client"
	servingName = "kubelet"
	caFile      = "ca.crt"
	partSuffix  = ".part"
	// joiningKeyName is the key of the client certificate that a machine has requested and not got yet.
	joiningKeyName = clientName + ".key.joining"
)

// certificate is a certificate in use.
type certificate struct {
	tls     *tls.Certificate
	renewAt time.Time
}

// newCertificate parses a certificate and its key, and sets when it is renewed: after 70 to 90 % of its lifetime.
func newCertificate(certPEM, keyPEM []byte) (*certificate, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	life := pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore)
	return &certificate{tls: &pair, renewAt: pair.Leaf.NotBefore.Add(time.Duration(float64(life) * (0.7 + 0.2*rand.Float64())))}, nil
}

// load reads the files of an earlier start. joined is false if the machine has to join.
func (id *Identity) load() (joined bool, err error) {
	if err := os.MkdirAll(id.o.Dir, 0o700); err != nil {
		return false, err
	}
	bundle, err := os.ReadFile(id.path(caFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := id.setTrust(bundle); err != nil {
		return false, nil // the file was cut short
	}
	id.filesOfCluster = id.o.Token == nil || id.pinned(id.o.Token.Pin)
	client, err := id.read(clientName)
	if client == nil || err != nil {
		return false, err
	}
	if name := client.tls.Leaf.Subject.CommonName; name != nodePrefix+id.o.Node {
		return false, fmt.Errorf("%s holds the certificate of %s, not of node %s: use another --data-dir, or forget that node with \"skiff down --purge\"", id.o.Dir, name, id.o.Node)
	}
	if !id.filesOfCluster {
		return false, nil // the files are of another cluster than the one to join
	}
	if !id.o.Now().Before(client.tls.Leaf.NotAfter) {
		id.o.Log.Warn("the node's client certificate has expired", "at", client.tls.Leaf.NotAfter)
		return false, nil
	}
	id.client.Store(client)
	serving, err := id.read(servingName)
	if err != nil {
		return false, err
	}
	if serving != nil && id.o.Now().Before(serving.tls.Leaf.NotAfter) && id.coversHosts(serving) {
		id.serving.Store(serving)
	}
	return true, nil
}

// coversHosts reports whether a serving certificate is for all names and addresses of the node.
func (id *Identity) coversHosts(serving *certificate) bool {
	for _, host := range id.o.Hosts {
		if serving.tls.Leaf.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

// pinned reports whether one of the trusted authorities is the one of a pin.
func (id *Identity) pinned(pin Pin) bool {
	certificates, err := parseBundle(id.Bundle())
	if err != nil {
		return false
	}
	return slices.ContainsFunc(certificates, func(c *x509.Certificate) bool { return pinOf(c) == pin })
}

// read reads a certificate and its key. It returns nil if a file is missing or damaged. If a crash came between the renames of store, the certificate of the key
// is still in its part file: it is put in place.
func (id *Identity) read(name string) (*certificate, error) {
	keyPEM, err := readIfExists(id.path(name + ".key"))
	if err != nil {
		return nil, err
	}
	certPEM, err := readIfExists(id.path(name + ".crt"))
	if err != nil {
		return nil, err
	}
	pair, parseErr := newCertificate(certPEM, keyPEM)
	if parseErr == nil {
		return pair, nil
	}
	part := id.path(name + ".crt" + partSuffix)
	partPEM, err := readIfExists(part)
	if err != nil {
		return nil, err
	}
	if pair, err := newCertificate(partPEM, keyPEM); err == nil {
		return pair, os.Rename(part, id.path(name+".crt"))
	}
	if keyPEM != nil && certPEM != nil {
		id.o.Log.Warn("failed to parse a certificate; a new one is requested", "file", id.path(name+".crt"), "error", parseErr)
	}
	return nil, nil
}

// readIfExists returns the content of a file; nil if it does not exist.
func readIfExists(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// store writes a new certificate and its key to files, and uses it from now on. Both are on disk before the key takes the place of the old one, so that read can
// put the certificate in place after a crash in between. bundle, if there is one, are the authorities to trust from now on.
func (id *Identity) store(name string, certPEM, keyPEM, bundle []byte) error {
	pair, err := newCertificate(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("failed to parse the certificate that the cluster has signed: %w", err)
	}
	if len(bundle) > 0 {
		if err := id.write(caFile, bundle); err != nil {
			return err
		}
	}
	if err := errors.Join(id.writePart(name+".key", keyPEM), id.writePart(name+".crt", certPEM)); err != nil {
		return err
	}
	for _, file := range []string{name + ".key", name + ".crt"} {
		if err := os.Rename(id.path(file+partSuffix), id.path(file)); err != nil {
			return err
		}
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

// write replaces a file by a rename, so that readers see the old content or the new.
func (id *Identity) write(name string, data []byte) error {
	if err := id.writePart(name, data); err != nil {
		return err
	}
	return os.Rename(id.path(name+partSuffix), id.path(name))
}

// writePart writes what is to become the content of a file to its part file, and syncs it to disk.
func (id *Identity) writePart(name string, data []byte) error {
	f, err := os.OpenFile(id.path(name+partSuffix), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
