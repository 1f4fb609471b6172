package runtime

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/images"
)

// upstream is a registry that needs a password, and fails as the test says.
type upstream struct {
	*httptest.Server
	store    *images.Store
	password string
	corrupt  atomic.Bool // it changes a byte of every layer
	asked    atomic.Int32
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	store, err := images.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	registry := httptest.NewServer(images.Handler(store))
	t.Cleanup(registry.Close)
	u := &upstream{store: store}
	target, _ := url.Parse(registry.URL)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(r *http.Response) error {
		if u.corrupt.Load() && strings.Contains(r.Request.URL.Path, "/blobs/") && r.ContentLength > 100_000 {
			r.Body = &damaged{r.Body, false}
		}
		return nil
	}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.asked.Add(1)
		if user, password, _ := r.BasicAuth(); u.password != "" && (user != "me" || password != u.password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="upstream"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(u.Close)
	return u
}

type damaged struct {
	inner interface {
		Read([]byte) (int, error)
		Close() error
	}
	done bool
}

func (d *damaged) Read(p []byte) (int, error) {
	n, err := d.inner.Read(p)
	if n > 0 && !d.done {
		p[n/2] ^= 1
		d.done = true
	}
	return n, err
}

func (d *damaged) Close() error { return d.inner.Close() }

// host returns the registry's name in images.
func (u *upstream) host() string { return strings.TrimPrefix(u.URL, "http://") }

// brings adds an image to a registry. Images of different names differ.
func brings(t *testing.T, store *images.Store, name string) {
	t.Helper()
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\nCOPY content /\n"), 0o644)
	os.WriteFile(filepath.Join(dir, "content"), []byte(strings.Repeat(fmt.Sprintf("%s %s\n", name, t.Name()), 20_000)), 0o644)
	n, err := images.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Build(t.Context(), dir, "", n); err != nil {
		t.Fatal(err)
	}
}

func TestPulls(t *testing.T) {
	n := newNode(t, "10.199.4.0/24")
	has := func(image string) bool {
		s, err := n.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: image}})
		return err == nil && s.Image != nil
	}

	t.Run("secrets", func(t *testing.T) {
		u := newUpstream(t)
		u.password = "secret"
		brings(t, u.store, "team/private:1") // asked for without a registry's name, it is docker.io's there
		image := u.host() + "/team/private:1"
		for _, auth := range []*cri.AuthConfig{nil, {Username: "me", Password: "wrong"}} {
			if err := n.pull(image, auth); err == nil || !strings.Contains(err.Error(), "401") && !strings.Contains(err.Error(), "authorization") {
				t.Errorf("pulled with %v: %v", auth, err)
			}
		}
		if err := n.pull(image, &cri.AuthConfig{Username: "me", Password: "secret"}); err != nil {
			t.Error(err)
		}
	})

	t.Run("ours first, and alone when upstream is away", func(t *testing.T) {
		u := newUpstream(t)
		brings(t, u.store, "app:1")
		image := u.host() + "/library/app:1"
		brings(t, n.store, image)
		if err := n.pull(image, nil); err != nil || u.asked.Load() > 0 {
			t.Errorf("pulled with %d requests to upstream: %v", u.asked.Load(), err)
		}
		u.Close()
		if err := n.pull(image, nil); err != nil { // as imagePullPolicy: Always does
			t.Error(err)
		}
		began := time.Now()
		if err := n.pull(u.host()+"/library/other:1", nil); err == nil || !strings.Contains(err.Error(), "connection refused") || time.Since(began) > 5*time.Second {
			t.Errorf("pulled from nowhere after %v: %v", time.Since(began), err)
		}
	})

	t.Run("corrupt upstream", func(t *testing.T) {
		u := newUpstream(t)
		brings(t, u.store, "app:2")
		u.corrupt.Store(true)
		image := u.host() + "/library/app:2"
		if err := n.pull(image, nil); err == nil || !strings.Contains(err.Error(), "digest") {
			t.Errorf("pulled what is corrupt: %v", err)
		}
		if has(image) {
			t.Error("what is corrupt is taken for an image")
		}
		u.corrupt.Store(false)
		// What was fetched of it is thrown away after a moment; then it is fetched anew.
		n.await("the image after it was mended", func() bool {
			time.Sleep(200 * time.Millisecond)
			return n.pull(image, nil) == nil && has(image)
		})
	})

	t.Run("corrupt here", func(t *testing.T) {
		u := newUpstream(t)
		brings(t, u.store, "app:3")
		image := u.host() + "/library/app:3"
		brings(t, n.store, image)
		blobs, err := filepath.Glob(filepath.Join(n.data, "images", "blobs", "sha256", "*"))
		if err != nil {
			t.Fatal(err)
		}
		damage := 0
		for _, path := range blobs {
			if data, _ := os.ReadFile(path); strings.Contains(string(data), image+" ") {
				data[len(data)/2] ^= 1
				os.WriteFile(path, data, 0o600)
				damage++
			}
		}
		if damage != 1 {
			t.Fatalf("damaged %d blobs", damage)
		}
		if err := n.pull(image, nil); err == nil {
			t.Error("pulled what is corrupt here and different upstream")
		}
		brings(t, n.store, image)
		if err := n.pull(image, nil); err != nil {
			t.Errorf("after it was brought again: %v", err)
		}
	})

	t.Run("unknown", func(t *testing.T) {
		u := newUpstream(t)
		if err := n.pull(u.host()+"/library/never:1", nil); status.Code(err) != codes.NotFound {
			t.Errorf("pulled what nobody has: %v", err)
		}
	})
}
