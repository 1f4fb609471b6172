package etcd_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skiff/internal/store"
	"skiff/internal/store/etcd"
)

// TestExternalOutage stops the server and starts it again. Meanwhile calls say that nothing was written; afterwards
// the watch has missed nothing.
func TestExternalOutage(t *testing.T) {
	t.Parallel()
	dir, socket := t.TempDir(), "unix:"+socketPath(t)
	server := embed(t, etcd.EmbedOptions{Dir: dir, Listen: socket})
	client, err := etcd.Dial(t.Context(), etcd.DialOptions{Endpoints: []string{server.ListenAddress()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	start := put(t, client, "/a", "before")
	w := client.Watch(t.Context(), "/", start)
	if err := client.Progress(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-w.Batches() // the stream is established
	server.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	// The first call may find a connection that looks alive; once that is known to be gone, nothing is sent.
	_, _ = client.Put(ctx, "/a", []byte("lost"), store.PutOptions{IfRevision: start})
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, err := client.Put(t.Context(), "/a", []byte("lost"), store.PutOptions{IfRevision: start})
		if errors.Is(err, store.ErrUnavailable) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("put without a server: %v", err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := client.Healthy(short); err == nil {
		t.Error("healthy without a server")
	}

	server = embed(t, etcd.EmbedOptions{Dir: dir, Listen: socket})
	after := put(t, server, "/a", "after")
	for {
		batch, ok := <-w.Batches()
		if !ok {
			t.Fatalf("the watch broke: %v", w.Err())
		}
		if len(batch.Events) > 0 {
			if e := batch.Events[0]; e.Revision != after || string(e.Value) != "after" {
				t.Errorf("got %+v, want the write at %d", e, after)
			}
			break
		}
	}
	if got := value(t, client, "/a"); got != "after" {
		t.Errorf("read %q", got)
	}
}

func TestDialNobody(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if s, err := etcd.Dial(ctx, etcd.DialOptions{Endpoints: []string{"unix://" + socketPath(t)}}); err == nil {
		s.Close()
		t.Error("connected to nobody")
	}
	if s, err := etcd.Dial(ctx, etcd.DialOptions{}); err == nil {
		s.Close()
		t.Error("connected without endpoints")
	}
}

func TestListenOnStaleSocket(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Embed(t.Context(), etcd.EmbedOptions{Dir: t.TempDir(), Listen: "unix:" + path}); err == nil {
		t.Error("took the socket of a living process")
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	embed(t, etcd.EmbedOptions{Dir: t.TempDir(), Listen: "unix:" + path})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestListenTLS(t *testing.T) {
	t.Parallel()
	pki := newPKI(t)
	server := embed(t, etcd.EmbedOptions{
		Dir: t.TempDir(), Listen: "https://127.0.0.1:0",
		CAFile: pki.ca, CertFile: pki.cert, KeyFile: pki.key,
	})
	endpoints := []string{server.ListenAddress()}
	client, err := etcd.Dial(t.Context(), etcd.DialOptions{Endpoints: endpoints, CAFile: pki.ca, CertFile: pki.cert, KeyFile: pki.key})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	put(t, client, "/a", "1")
	if got := value(t, server, "/a"); got != "1" {
		t.Errorf("read %q", got)
	}

	other := newPKI(t)
	for name, opts := range map[string]etcd.DialOptions{
		"no certificate":         {CAFile: pki.ca},
		"certificate of another": {CAFile: pki.ca, CertFile: other.cert, KeyFile: other.key},
	} {
		opts.Endpoints = endpoints
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if s, err := etcd.Dial(ctx, opts); err == nil {
			s.Close()
			t.Errorf("%s: let in", name)
		}
		cancel()
	}
}

type pki struct{ ca, cert, key string }

// newPKI makes a CA and one certificate that serves as server's and client's.
func newPKI(t *testing.T) pki {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	must(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test"},
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	return pki{
		ca:   write("ca.crt", "CERTIFICATE", caDER),
		cert: write("tls.crt", "CERTIFICATE", der),
		key:  write("tls.key", "PRIVATE KEY", keyDER),
	}
}
