package identity_test

import (
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"skiff/internal/cluster/pki"
)

// issuedCredentials are the credentials that people and pods got from a cluster before a restart.
type issuedCredentials struct {
	admin  *rest.Config // a copy of the administrator's kubeconfig
	tokens map[string]string
}

// give issues credentials.
func give(t *testing.T, p *process) *issuedCredentials {
	t.Helper()
	g := &issuedCredentials{admin: configOf(t, p.data, "admin"), tokens: map[string]string{}}
	client := clientOf(t, g.admin)
	newAccount(t, client, "default", "robot")
	pod := newPod("robot")
	pod.Spec.ServiceAccountName = "robot"
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]authenticationv1.TokenRequestSpec{"a token": {}, "a pod's token": {BoundObjectRef: boundTo("Pod", "robot")}} {
		answer, err := client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		g.tokens[name] = answer.Status.Token
	}
	return g
}

// check uses the issued credentials, and all that the data directory has now.
func (g *issuedCredentials) check(t *testing.T, p *process) {
	t.Helper()
	for name, token := range g.tokens {
		if !accepted(t, clientOf(t, withToken(g.admin, token))) {
			t.Errorf("%s is refused", name)
		}
	}
	if _, err := clientOf(t, g.admin).CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a copy of the administrator's kubeconfig: %v", err)
	}
	for _, c := range components {
		c.check(t, configOf(t, p.data, c.kubeconfig))
	}
}

// TestRestart kills the program and starts it again: all certificates, keys and kubeconfigs are unchanged, and issued credentials are valid.
func TestRestart(t *testing.T) {
	p := startProgram(t)
	g := give(t, p)
	before := credentials(t, p.data)
	for range 2 {
		p.kill()
		p.start()
		g.check(t, p)
	}
	p.stop()
	p.start()
	g.check(t, p)
	after := credentials(t, p.data)
	for _, file := range slices.Sorted(maps.Keys(before)) {
		if before[file] != after[file] {
			t.Errorf("%s is not as before", file)
		}
	}
	if len(before) < 20 || len(after) != len(before) {
		t.Errorf("%d files before, %d after", len(before), len(after))
	}
}

// credentials returns the certificates, keys and kubeconfigs of a data directory.
func credentials(t *testing.T, dataDir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dataDir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if path == filepath.Join(dataDir, "etcd") {
				return fs.SkipDir
			}
			return err
		}
		if ext := filepath.Ext(path); ext == ".crt" || ext == ".key" || ext == ".pub" || ext == ".kubeconfig" {
			data, err := os.ReadFile(path)
			files[strings.TrimPrefix(path, dataDir)] = string(data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestExpired starts the program where all certificates have expired or are missing: they are issued again, the administrator's kubeconfig is valid
// again, and so are credentials issued before that have not expired themselves.
func TestExpired(t *testing.T) {
	p := startProgram(t)
	g := give(t, p)
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"ended", func() { age(t, filepath.Join(p.data, "pki")) }},
		{"gone", func() {
			for path := range leaves(t, p.data) {
				for _, file := range []string{path, strings.TrimSuffix(path, ".crt") + ".key"} {
					if err := os.Remove(file); err != nil {
						t.Fatal(err)
					}
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.kill()
			before := credentials(t, p.data)
			c.do()
			p.start()
			g.check(t, p)
			now := time.Now()
			for path, leaf := range leaves(t, p.data) {
				if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
					t.Errorf("%s is good from %v to %v", path, leaf.NotBefore, leaf.NotAfter)
				}
			}
			after := credentials(t, p.data)
			if before["/admin.kubeconfig"] == after["/admin.kubeconfig"] {
				t.Error("the administrator's kubeconfig is the old one")
			}
			for _, key := range []string{"/pki/ca.key", "/pki/front-proxy-ca.key", "/pki/etcd/ca.key", "/pki/sa.key", "/pki/sa.pub"} {
				if before[key] == "" || before[key] != after[key] {
					t.Errorf("%s is another", key)
				}
			}
		})
	}
}

// age replaces all certificates of a directory by expired ones, as if the cluster had last run two years ago.
func age(t *testing.T, dir string) {
	t.Helper()
	then := time.Now().AddDate(-2, 0, 0)
	if _, err := pki.Open(pki.Options{Dir: dir, Now: func() time.Time { return then }, LeafLife: time.Hour, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	for path, leaf := range leaves(t, filepath.Dir(dir)) {
		if leaf.NotAfter.After(time.Now()) {
			t.Fatalf("%s has not ended", path)
		}
	}
}

// leaves returns the certificates of a data directory that are not CAs.
func leaves(t *testing.T, dataDir string) map[string]*x509.Certificate {
	t.Helper()
	found := map[string]*x509.Certificate{}
	for path := range credentials(t, dataDir) {
		if filepath.Ext(path) != ".crt" {
			continue
		}
		path = filepath.Join(dataDir, path)
		pair, err := tls.LoadX509KeyPair(path, strings.TrimSuffix(path, ".crt")+".key")
		if err != nil {
			t.Fatal(err)
		}
		if !pair.Leaf.IsCA {
			found[path] = pair.Leaf
		}
	}
	if len(found) < 8 {
		t.Fatalf("found only %d certificates", len(found))
	}
	return found
}
