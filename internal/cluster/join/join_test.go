package join_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"

	"skiff/internal/cluster"
	"skiff/internal/cluster/join"
	"skiff/internal/controller"
)

const testTimeout = time.Minute

// TestMain silences client-go, which logs whenever a server stops.
func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// fixture is a whole cluster without a node, in this process.
type fixture struct {
	t      *testing.T
	admin  *rest.Config
	api    kubernetes.Interface
	server *url.URL
}

func newFixture(t *testing.T, life controller.Seconds) *fixture {
	t.Helper()
	return newFixtureWith(t, cluster.Config{Loops: controller.Config{SigningDuration: life}})
}

func newFixtureWith(t *testing.T, config cluster.Config) *fixture {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	dir := t.TempDir()
	config.DataDir, config.BindAddress, config.Port, config.Log = dir, "0.0.0.0", port, slog.New(slog.DiscardHandler)
	config.Controllers, config.Disable = []string{"*"}, []string{"scheduler"}
	config.Loops.NodeMonitorGracePeriod, config.Loops.NodeMonitorPeriod = 50, 5
	s, err := cluster.Start(t.Context(), config)
	must(t, err)
	t.Cleanup(s.Stop)
	w := &fixture{t: t, server: &url.URL{Scheme: "https", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}}
	w.admin, err = clientcmd.BuildConfigFromFlags("", cluster.KubeconfigPath(dir))
	must(t, err)
	w.admin.QPS = -1
	w.api, err = kubernetes.NewForConfig(w.admin)
	must(t, err)
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *fixture) token(life time.Duration) *join.Token {
	w.t.Helper()
	return w.tokenFor(0, life)
}

// tokenFor makes a token for so many machines.
func (w *fixture) tokenFor(uses int, life time.Duration) *join.Token {
	w.t.Helper()
	token, err := join.NewToken(w.admin.CAData)
	must(w.t, err)
	must(w.t, join.CreateToken(w.t.Context(), w.api.CoreV1(), token, life, uses, ""))
	return &token
}

func (w *fixture) options(dir, node string, token *join.Token) join.Options {
	return join.Options{Dir: dir, Server: w.server, Token: token, Node: node, Hosts: []string{node, "192.0.2.7"}, Log: slog.New(slog.DiscardHandler)}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", testTimeout, what)
		}
	}
}

// leaf returns the certificate in a file, or nil if it does not match its key.
func leaf(t *testing.T, dir, name string) *x509.Certificate {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	if err != nil {
		return nil // only one of the two files is renewed yet
	}
	return pair.Leaf
}

// A node goes on without a pause when its certificates are renewed: its requests are its own beyond the end of the first certificate, and it serves with
// the new one.
func TestRenewal(t *testing.T) {
	t.Parallel()
	w := newFixture(t, 6)
	dir := t.TempDir()
	id, err := join.Open(t.Context(), w.options(dir, "one", w.token(time.Hour)))
	must(t, err)
	first := leaf(t, dir, "kubelet-client")
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { id.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	api, err := kubernetes.NewForConfig(id.Config())
	must(t, err)
	_, err = api.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
	must(t, err)
	addresses := `{"status":{"addresses":[{"type":"Hostname","address":"one"},{"type":"InternalIP","address":"192.0.2.7"}]}}`
	_, err = api.CoreV1().Nodes().PatchStatus(t.Context(), "one", []byte(addresses))
	must(t, err)

	listener, err := tls.Listen("tcp", "127.0.0.1:0", id.Serving(&tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, id.Pool))
	must(t, err)
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_ = conn.(*tls.Conn).Handshake()
			}()
		}
	}()
	served := func() *x509.Certificate {
		conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{RootCAs: id.Pool(), ServerName: "192.0.2.7"})
		if err != nil {
			return nil
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0]
	}
	var serving *x509.Certificate
	await(t, "the first certificate to serve with", func() bool { serving = served(); return serving != nil })
	if serving.VerifyHostname("one") != nil {
		t.Errorf("it is for %v, %v", serving.DNSNames, serving.IPAddresses)
	}
	for time.Now().Before(first.NotAfter.Add(time.Second)) {
		_, err := api.CoreV1().Nodes().Get(t.Context(), "one", metav1.GetOptions{})
		var status apierrors.APIStatus
		if errors.As(err, &status) { // connections may break when the certificate is new
			t.Fatalf("at %v: %v", time.Until(first.NotAfter), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if now := leaf(t, dir, "kubelet-client"); now == nil || now.SerialNumber.Cmp(first.SerialNumber) == 0 || bytes.Equal(now.RawSubjectPublicKeyInfo, first.RawSubjectPublicKeyInfo) {
		t.Error("the client certificate or its key is the first one")
	}
	await(t, "another certificate to serve with", func() bool {
		now := served()
		return now != nil && now.SerialNumber.Cmp(serving.SerialNumber) != 0
	})
}

// A node that has joined comes back by what it kept, whatever became of the token, and joins again where that cannot be used any more.
func TestComingBack(t *testing.T) {
	t.Parallel()
	w := newFixture(t, 0)
	dir := t.TempDir()
	token := w.token(time.Hour)
	_, err := join.Open(t.Context(), w.options(dir, "one", token))
	must(t, err)
	first := leaf(t, dir, "kubelet-client")
	for _, path := range []string{"ca.crt", "kubelet-client.crt", "kubelet-client.key"} {
		if info, err := os.Stat(filepath.Join(dir, path)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	id, err := join.Open(t.Context(), w.options(dir, "one", nil))
	must(t, err)
	api, err := kubernetes.NewForConfig(id.Config())
	must(t, err)
	if _, err := api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if now := leaf(t, dir, "kubelet-client"); now.SerialNumber.Cmp(first.SerialNumber) != 0 {
		t.Error("it has joined again")
	}
	// A renewal puts the new key in place and then the new certificate: a crash in between leaves the certificate in its part file.
	cert := filepath.Join(dir, "kubelet-client.crt")
	another, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	must(t, err)
	must(t, os.Rename(cert, cert+".part"))
	must(t, os.WriteFile(cert, another, 0o600))
	if _, err := join.Open(t.Context(), w.options(dir, "one", nil)); err != nil {
		t.Errorf("after a crash during a renewal: %v", err)
	}
	if now := leaf(t, dir, "kubelet-client"); now.SerialNumber.Cmp(first.SerialNumber) != 0 {
		t.Error("after a crash during a renewal the certificate in place is not that of the key")
	}
	if _, err := join.Open(t.Context(), w.options(dir, "two", token)); err == nil || !strings.Contains(err.Error(), "system:node:one, not of node two") {
		t.Errorf("as another node: %v", err)
	}
	ended := w.options(dir, "one", nil)
	ended.Now = func() time.Time { return first.NotAfter.Add(time.Hour) }
	if _, err := join.Open(t.Context(), ended); err == nil || !strings.Contains(err.Error(), "not in a cluster yet") {
		t.Errorf("with a certificate that has ended: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "kubelet-client.crt"), []byte("-----BEGIN CERT"), 0o600)) // a crash
	if _, err := join.Open(t.Context(), w.options(dir, "one", nil)); err == nil {
		t.Error("with half a certificate and no token")
	}
	if _, err := join.Open(t.Context(), w.options(dir, "one", token)); err != nil {
		t.Errorf("with half a certificate and a token: %v", err)
	}
	// Another cluster's token: what was kept is of no use there.
	other := newFixture(t, 0)
	if _, err := join.Open(t.Context(), other.options(dir, "one", other.token(time.Hour))); err != nil {
		t.Errorf("joining another cluster: %v", err)
	}
}

// Of two machines that come with a token for one at the same time, one joins. It may ask again with its key if it crashed on the way, before or after its certificate
// was issued; the other is refused.
func TestOneTokenOneMachine(t *testing.T) {
	t.Parallel()
	w := newFixture(t, 0)
	token := w.tokenFor(1, time.Hour)
	type machine struct {
		dir, name string
		err       error
	}
	machines := []*machine{{dir: t.TempDir(), name: "one"}, {dir: t.TempDir(), name: "two"}, {dir: t.TempDir(), name: "three"}}
	var all sync.WaitGroup
	for _, m := range machines {
		all.Go(func() { _, m.err = join.Open(t.Context(), w.options(m.dir, m.name, token)) })
	}
	all.Wait()
	var in *machine
	for _, m := range machines {
		switch {
		case m.err == nil && in == nil:
			in = m
		case m.err == nil:
			t.Fatalf("%s and %s joined with a token for one machine", in.name, m.name)
		case !strings.Contains(m.err.Error(), "is used up"):
			t.Errorf("%s: %v", m.name, m.err)
		default:
			if left, err := os.ReadDir(m.dir); err != nil || len(left) > 0 {
				t.Errorf("%s left %v, %v", m.name, left, err)
			}
		}
	}
	if in == nil {
		t.Fatal("nobody joined")
	}
	first := leaf(t, in.dir, "kubelet-client")
	for what, crash := range map[string]func() error{
		"before it had its certificate": func() error {
			return errors.Join(os.Rename(filepath.Join(in.dir, "kubelet-client.key"), filepath.Join(in.dir, "kubelet-client.key.joining")),
				os.Remove(filepath.Join(in.dir, "kubelet-client.crt")), os.Remove(filepath.Join(in.dir, "ca.crt")))
		},
		"before its certificate was on the disk": func() error { return os.Remove(filepath.Join(in.dir, "kubelet-client.crt")) },
	} {
		must(t, crash())
		if _, err := join.Open(t.Context(), w.options(in.dir, in.name, token)); err != nil {
			t.Fatalf("after a crash %s: %v", what, err)
		}
		if now := leaf(t, in.dir, "kubelet-client"); now == nil || !bytes.Equal(now.RawSubjectPublicKeyInfo, first.RawSubjectPublicKeyInfo) {
			t.Errorf("after a crash %s the key is another one", what)
		}
		if _, err := os.Stat(filepath.Join(in.dir, "kubelet-client.key.joining")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after a crash %s a key is left: %v", what, err)
		}
	}
	if _, err := join.Open(t.Context(), w.options(t.TempDir(), in.name, w.token(time.Hour))); err == nil || !strings.Contains(err.Error(), "another machine is joining as node "+in.name) {
		t.Errorf("another machine of that name: %v", err)
	}
}

// Whoever has not what it takes is told what is missing, at once, and whoever is not the cluster is told nothing.
func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newFixture(t, 0)
	good := w.token(time.Hour)
	wrong, pinned := *good, *good
	wrong.Secret = "0000000000000000"
	pinned.Pin[0]++
	elsewhere := w.options("", "one", good)
	elsewhere.Server = &url.URL{Scheme: "https", Host: "127.0.0.5:" + w.server.Port()}
	deleted := w.token(0)
	if _, err := join.DeleteToken(t.Context(), w.api.CoreV1(), deleted.String()); err != nil {
		t.Fatal(err)
	}
	expired := w.token(time.Second)
	await(t, "the token to expire", func() bool {
		all, err := join.ListTokens(t.Context(), w.api.CoreV1())
		return err == nil && !slices.ContainsFunc(all, func(i join.TokenInfo) bool { return i.ID == expired.ID })
	})
	for what, c := range map[string]struct {
		options join.Options
		want    string
	}{
		"a wrong secret":         {w.options("", "one", &wrong), "does not know the token " + good.ID},
		"a deleted token":        {w.options("", "one", deleted), "does not know the token"},
		"an expired token":       {w.options("", "one", expired), "does not know the token"},
		"another authority":      {w.options("", "one", &pinned), "Nothing has been told to it"},
		"no token":               {w.options("", "one", nil), "--server and --token"},
		"an address without SAN": {elsewhere, "--tls-san"},
	} {
		c.options.Dir = t.TempDir()
		began := time.Now()
		if _, err := join.Open(t.Context(), c.options); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
		if took := time.Since(began); took > testTimeout/2 {
			t.Errorf("%s took %v", what, took)
		}
		if left, err := os.ReadDir(c.options.Dir); err != nil || len(left) > 0 {
			t.Errorf("%s left %v, %v", what, left, err)
		}
	}
}

// A server may show a certificate of somebody else's; then the token pins that.
func TestAServersOwnCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mine"}, IPAddresses: []net.IP{net.ParseIP("127.0.0.1")},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	must(t, err)
	config := cluster.Config{TLSCertFile: filepath.Join(dir, "mine.crt"), TLSKeyFile: filepath.Join(dir, "mine.key")}
	must(t, os.WriteFile(config.TLSCertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(config.TLSKeyFile, keyPEM, 0o600))
	w := newFixtureWith(t, config)
	id, err := join.Open(t.Context(), w.options(t.TempDir(), "one", w.token(time.Hour)))
	must(t, err)
	api, err := kubernetes.NewForConfig(id.Config())
	must(t, err)
	if _, err := api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

// A machine that starts before its server waits for it.
func TestPatience(t *testing.T) {
	t.Parallel()
	w := newFixture(t, 0)
	o := w.options(t.TempDir(), "one", w.token(time.Hour))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	o.Server = &url.URL{Scheme: "https", Host: listener.Addr().String()}
	listener.Close()
	time.AfterFunc(300*time.Millisecond, func() { // the server comes up there
		again, err := net.Listen("tcp", o.Server.Host)
		if err != nil {
			return
		}
		t.Cleanup(func() { again.Close() })
		for {
			conn, err := again.Accept()
			if err != nil {
				return
			}
			go forward(conn, w.server.Host)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if _, err := join.Open(ctx, o); err != nil {
		t.Error(err)
	}
}

// forward joins a connection with another.
func forward(conn net.Conn, to string) {
	defer conn.Close()
	other, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer other.Close()
	var both sync.WaitGroup
	both.Go(func() { _, _ = other.(*net.TCPConn).ReadFrom(conn); other.Close() })
	both.Go(func() { _, _ = conn.(*net.TCPConn).ReadFrom(other); conn.Close() })
	both.Wait()
}
