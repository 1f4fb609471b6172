package cluster

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"skiff/internal/cluster/kubeconfig"
	"skiff/internal/cluster/pki"
)

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func load(t *testing.T, file string) *api.Config {
	t.Helper()
	c, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// identities runs a server with certificates of a cluster that answers with the subject of the client's certificate, and returns its URL.
func identities(t *testing.T, certs *pki.Manager) string {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.TLS.PeerCertificates[0].Subject)
	}))
	server.Listener = tls.NewListener(server.Listener, certs.ServerConfig(&tls.Config{NextProtos: []string{"http/1.1"}}, pki.APIServer, pki.CA))
	server.Start()
	t.Cleanup(server.Close)
	return "https://" + server.Listener.Addr().String()
}

// ask returns the subject of the certificate that a kubeconfig has, as a server of identities sees it.
func ask(t *testing.T, file string) string {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	r, err := client.Get(c.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body := make([]byte, 1000)
	n, _ := r.Body.Read(body)
	return string(body[:n])
}

// TestKubeconfigsLeadToTheAPI: each kubeconfig reaches the API with the certificate of its component.
func TestKubeconfigsLeadToTheAPI(t *testing.T) {
	dir := t.TempDir()
	certs, err := pki.Open(pki.Options{Dir: filepath.Join(dir, "pki"), Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	files := &kubeconfigs{dataDir: dir, name: "mine", url: identities(t, certs), certs: certs, log: quiet()}
	if err := files.write(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "kubelet.kubeconfig")); err == nil {
		t.Error("a cluster without a node has a kubelet")
	}
	if err := certs.Ensure(pki.NodeLeaves("one")...); err != nil {
		t.Fatal(err)
	}
	if err := files.write(); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"admin.kubeconfig":              "CN=kubernetes-admin,O=system:masters",
		"controller-manager.kubeconfig": "CN=system:kube-controller-manager",
		"scheduler.kubeconfig":          "CN=system:kube-scheduler",
		"proxy.kubeconfig":              "CN=system:kube-proxy",
		"kubelet.kubeconfig":            "CN=system:node:one,O=system:nodes",
	} {
		path := filepath.Join(dir, file)
		if got := ask(t, path); got != want {
			t.Errorf("with %s one is %s", file, got)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 || !isKubeconfig(file) || !isKubeconfig(file+".part") {
			t.Errorf("%s: %v %v", file, info, err)
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := files.write(); err != nil {
			t.Fatal(err)
		}
		if again, err := os.Stat(path); err != nil || again.ModTime() != info.ModTime() || again.Mode().Perm() != 0o600 {
			t.Errorf("%s was written without need, or others may read it", file)
		}
	}
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, filepath.Join(moved, "scheduler.kubeconfig")); got != "CN=system:kube-scheduler" {
		t.Errorf("after moving the data directory one is %s", got)
	}
	// If the API's certificate was given by the user, kubeconfigs trust its authority.
	given := &kubeconfigs{dataDir: t.TempDir(), name: "mine", url: "https://x", ca: []byte("theirs"), certs: certs, log: quiet()}
	if err := given.write(); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"admin.kubeconfig", "scheduler.kubeconfig"} {
		if c := load(t, filepath.Join(given.dataDir, file)).Clusters["mine"]; string(c.CertificateAuthorityData) != "theirs" || c.CertificateAuthority != "" {
			t.Errorf("%s trusts %+v", file, c)
		}
	}
}

// TestRenewalReachesTheUser: after all certificates have expired under a running server, its own kubeconfig and the user's work again.
func TestRenewalReachesTheUser(t *testing.T) {
	dir, user := t.TempDir(), filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBECONFIG", user)
	put(t, user, "# mine\ncurrent-context: work\n")
	var offset atomic.Int64
	offset.Store(int64(-20 * 365 * 24 * time.Hour)) // the clock was wrong when the cluster was made
	now := func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	var files *kubeconfigs
	done := make(chan struct{})
	certs, err := pki.Open(pki.Options{Dir: filepath.Join(dir, "pki"), Log: quiet(), Now: now, OnChange: func(context.Context, []string) error {
		defer close(done)
		return files.write()
	}})
	if err != nil {
		t.Fatal(err)
	}
	files = &kubeconfigs{dataDir: dir, name: "mine", url: identities(t, certs), certs: certs, log: quiet()}
	if err := files.write(); err != nil {
		t.Fatal(err)
	}
	if _, err := kubeconfig.Merge(dir, "mine"); err != nil {
		t.Fatal(err)
	}
	before := load(t, user).AuthInfos["mine"].ClientCertificateData
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() { certs.Run(ctx) })
	offset.Store(0)
	certs.Pool(pki.CA) // as if a client connected
	<-done
	cancel()
	wg.Wait()
	if got := ask(t, KubeconfigPath(dir)); got != "CN=kubernetes-admin,O=system:masters" {
		t.Errorf("one is %s", got)
	}
	got := load(t, user)
	if string(got.AuthInfos["mine"].ClientCertificateData) == string(before) || got.CurrentContext != "work" || !strings.HasPrefix(read(t, user), "# mine\n") {
		t.Errorf("the user's kubeconfig was not renewed: %s", read(t, user))
	}
	got.CurrentContext = "mine"
	other := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*got, other); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, other); got != "CN=kubernetes-admin,O=system:masters" {
		t.Errorf("one is %s", got)
	}
	// What the user has changed is the user's.
	got.AuthInfos["mine"].ClientCertificateData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("another")})
	if err := clientcmd.WriteToFile(*got, user); err != nil {
		t.Fatal(err)
	}
	changed := read(t, user)
	files.url = "https://elsewhere"
	if err := files.write(); err != nil || read(t, user) != changed {
		t.Errorf("what the user had changed was overwritten (%v): %s", err, read(t, user))
	}
}
