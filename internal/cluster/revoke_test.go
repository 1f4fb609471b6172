package cluster

import (
	"context"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// TestRevokeAdmin: what docs/security.md says to do about a stolen administrator's key. Emptying ca.key makes another authority, with which
// all certificates are signed anew; once the old authority's certificate is taken out of ca.crt, the stolen key opens nothing.
func TestRevokeAdmin(t *testing.T) {
	config := Config{DataDir: t.TempDir(), Port: freePort(t), Log: quiet()}
	ca := filepath.Join(config.DataDir, "pki", "ca")
	var stolen []byte
	// restart runs the cluster and returns what it answers to the stolen kubeconfig and to the one it writes now.
	restart := func() (old, now int) {
		t.Helper()
		s, err := Start(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Stop()
		written, err := os.ReadFile(KubeconfigPath(config.DataDir))
		if err != nil {
			t.Fatal(err)
		}
		if stolen == nil {
			stolen = written
		}
		return answerTo(t, stolen), answerTo(t, written)
	}
	if old, now := restart(); old != http.StatusOK || now != http.StatusOK {
		t.Fatalf("answered %d and %d", old, now)
	}
	if err := os.Truncate(ca+".key", 0); err != nil {
		t.Fatal(err)
	}
	if old, now := restart(); old != http.StatusOK || now != http.StatusOK {
		t.Fatalf("with both authorities it answered %d and %d", old, now)
	}
	bundle, err := os.ReadFile(ca + ".crt")
	if err != nil {
		t.Fatal(err)
	}
	newest, rest := pem.Decode(bundle)
	if second, _ := pem.Decode(rest); second == nil {
		t.Fatal("the old authority is not in ca.crt any more")
	}
	if err := os.WriteFile(ca+".crt", pem.EncodeToMemory(newest), 0o600); err != nil {
		t.Fatal(err)
	}
	if old, now := restart(); old != http.StatusUnauthorized || now != http.StatusOK {
		t.Errorf("to the stolen key it answers %d, to the new one %d", old, now)
	}
}

// answerTo is the code with which the API answers to the administrator's kubeconfig. Whether the client trusts the server is not asked.
func answerTo(t *testing.T, kubeconfig []byte) int {
	t.Helper()
	c, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c.TLSClientConfig.CAData, c.TLSClientConfig.Insecure = nil, true
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, c.Host+"/api/v1/namespaces", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}
