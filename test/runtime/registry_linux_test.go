package runtime

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/images"
	"skiff/internal/images/access"
	kubeletcri "skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/image"
)

// impostor is a server that records the credentials that it is sent.
type impostor struct {
	next http.Handler // asks for credentials if nil

	mu       sync.Mutex
	requests int
	sent     []string
}

func (i *impostor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.requests++
	if a := r.Header.Get("Authorization"); a != "" {
		i.sent = append(i.sent, a)
	}
	i.mu.Unlock()
	if i.next != nil {
		i.next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="mirror"`)
	w.WriteHeader(http.StatusUnauthorized)
}

func (i *impostor) seen() (requests int, sent []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.requests, i.sent
}

// digest returns the manifest that an image of a registry has.
func digest(t *testing.T, store *images.Store, name string) string {
	t.Helper()
	n, err := images.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	d, err := store.Resolve(n)
	if err != nil {
		t.Fatal(err)
	}
	return string(d.Digest)
}

// pulled returns the digest of an image that containerd has, of those with its name.
func (n *node) pulled(name string) string {
	n.t.Helper()
	s, err := n.ImageStatus(n.t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
	if err != nil || s.Image == nil {
		n.t.Fatalf("%s: %v, %v", name, s, err)
	}
	return strings.Join(s.Image.RepoDigests, " ")
}

// containerd trusts skiff's registry only with its certificate, also a containerd that was started before; a pod's pull secrets are sent only to the registry they
// are for.
func TestRegistryTrust(t *testing.T) {
	n := newNode(t, "10.199.5.0/24")
	hosts := filepath.Join(n.runtime.Paths().Registries, "_default", "hosts.toml")

	t.Run("a data directory from before", func(t *testing.T) {
		n.runtime.Detach()
		if err := errors.Join(os.Remove(hosts), os.WriteFile(hosts, []byte("[host.\"http://"+n.server.Address()+"\"]\n  capabilities = [\"pull\", \"resolve\"]\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		n.start()
		if info, err := os.Stat(hosts); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s is %v, %v", hosts, info.Mode(), err)
		}
		brings(t, n.store, "docker.io/library/ours:1")
		if err := n.pull("ours:1", nil); err != nil {
			t.Error(err)
		}
	})

	t.Run("pull secrets", func(t *testing.T) {
		u := newUpstream(t)
		u.password = "secret"
		brings(t, u.store, "team/private:1")
		m := &impostor{}
		mirror := httptest.NewServer(m)
		t.Cleanup(mirror.Close)
		dir := filepath.Join(n.runtime.Paths().Registries, u.host())
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte("server = \""+u.URL+"\"\n[host.\""+mirror.URL+"\"]\n  capabilities = [\"pull\", \"resolve\"]\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		runtime, err := kubeletcri.Connect(n.runtime.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		defer runtime.Close()
		puller, err := image.New(image.Options{Runtime: runtime, Recorder: record.NewFakeRecorder(100)})
		if err != nil {
			t.Fatal(err)
		}
		secret := &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(
			`{"auths": {"` + u.host() + `": {"username": "me", "password": "secret"}}}`)}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "private", Namespace: "default", UID: "private"}}
		if _, err := puller.Ensure(t.Context(), image.Request{Pod: pod, About: pod, Image: u.host() + "/team/private:1", Policy: corev1.PullAlways, Secrets: []*corev1.Secret{secret}}); err != nil {
			t.Error(err)
		}
		if requests, sent := m.seen(); requests == 0 || len(sent) > 0 {
			t.Errorf("the mirror was asked %d times, and sent %q", requests, sent)
		}
	})

	t.Run("impostors", func(t *testing.T) {
		address := n.server.Address()
		if err := n.server.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		for name, start := range map[string]func(*httptest.Server){"plain": (*httptest.Server).Start, "tls": (*httptest.Server).StartTLS} {
			u := newUpstream(t)
			brings(t, u.store, "app:1")
			called := u.host() + "/library/app:1"
			evil, err := images.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			brings(t, evil, called)
			fake := &impostor{next: images.Handler(evil)}
			listener, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: fake}}
			start(server)
			err = n.pull(called, nil)
			server.Close()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			real, faked := digest(t, u.store, "app:1"), digest(t, evil, called)
			if got := n.pulled(called); !strings.Contains(got, real) || strings.Contains(got, faked) {
				t.Errorf("%s: pulled %s, upstream has %s, the impostor %s", name, got, real, faked)
			}
			if requests, sent := fake.seen(); requests > 0 || len(sent) > 0 {
				t.Errorf("%s: the impostor was asked %d times, and sent %q", name, requests, sent)
			}
		}
		var err error
		if n.server, err = access.Serve(access.Options{Dir: filepath.Join(n.data, "registry"), Address: address, Store: n.store, Log: n.log()}); err != nil {
			t.Fatal(err)
		}
		if err := n.pull("ours:1", nil); err != nil {
			t.Errorf("after the registry was back: %v", err)
		}
	})
}
