package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skiff/internal/images"
)

// served is a registry and how its clients find it.
type served struct {
	*Registry
	t *testing.T
}

func serve(t *testing.T, o Options) *served {
	t.Helper()
	store, err := images.Open(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	o.Store = store
	r, err := Serve(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &served{r, t}
}

// get asks at a host, as a client that has the files and whose clock shows a time.
func (s *served) get(host string, a images.Access, now time.Time) (int, *x509.Certificate, error) {
	s.t.Helper()
	pool := x509.NewCertPool()
	data, err := os.ReadFile(a.CAFile)
	if err != nil || !pool.AppendCertsFromPEM(data) {
		s.t.Fatalf("%s: %v", a.CAFile, err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Time: func() time.Time { return now }}}
	defer transport.CloseIdleConnections()
	_, port, _ := net.SplitHostPort(a.Address)
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", "https://"+net.JoinHostPort(host, port)+"/v2/", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.SetBasicAuth(a.Username, a.Password)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.TLS.PeerCertificates[0], nil
}

// The credentials are made once, outlast restarts, and are for the owner's eyes only.
func TestServe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "registry")
	first := serve(t, Options{Dir: dir, Address: "127.0.0.1:0"})
	a := first.Access()
	for _, host := range []string{"127.0.0.1", "localhost"} {
		if code, _, err := first.get(host, a, time.Now()); code != 200 {
			t.Errorf("at %s: %d, %v", host, code, err)
		}
	}
	wrong := a
	wrong.Password += "x"
	if code, _, err := first.get("127.0.0.1", wrong, time.Now()); code != 401 {
		t.Errorf("with another password: %d, %v", code, err)
	}
	if len(a.Password) < 20 || a.Address != first.Address() {
		t.Errorf("access is %+v", a)
	}
	var config struct {
		Auths map[string]struct{ Auth string }
	}
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil || json.Unmarshal(data, &config) != nil {
		t.Fatalf("config.json: %s, %v", data, err)
	}
	if auth, err := base64.StdEncoding.DecodeString(config.Auths[a.Address].Auth); string(auth) != "skiff:"+a.Password || len(config.Auths) != 2 {
		t.Errorf("config.json is %s, %v", data, err)
	}
	second := serve(t, Options{Dir: dir, Address: "127.0.0.1:0"})
	if b := second.Access(); b.Password != a.Password || b.CAFile != a.CAFile {
		t.Errorf("after a restart access is %+v, before it was %+v", b, a)
	}
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is %v", path, info.Mode())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	other := serve(t, Options{Dir: filepath.Join(t.TempDir(), "registry"), Address: "127.0.0.1:0"})
	theirs := a
	theirs.Address = other.Address()
	if code, _, err := other.get("127.0.0.1", theirs, time.Now()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("the registry of another node is believed: %d, %v", code, err)
	}
}

// A data directory from before, or one that a crash or a careless copy left, is mended.
func TestServeMends(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "registry")
	password := serve(t, Options{Dir: dir, Address: "127.0.0.1:0"}).Access().Password
	for name, spoil := range map[string]func() error{
		"readable by all": func() error { return os.Chmod(filepath.Join(dir, "password"), 0o644) },
		"no certificate":  func() error { return os.RemoveAll(filepath.Join(dir, "pki")) },
		"torn files": func() error {
			for _, f := range []string{"ca.crt", "config.json", "pki/registry.crt", "pki/registry-ca.key"} {
				if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
					return err
				}
			}
			return nil
		},
		"part left": func() error { return os.WriteFile(filepath.Join(dir, "config.json.part"), []byte("{"), 0o644) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		s := serve(t, Options{Dir: dir, Address: "127.0.0.1:0"})
		if code, _, err := s.get("127.0.0.1", s.Access(), time.Now()); code != 200 || s.Access().Password != password {
			t.Errorf("%s: %d, %v", name, code, err)
		}
		for _, f := range []string{"password", "config.json", "ca.crt"} {
			if info, err := os.Stat(filepath.Join(dir, f)); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %s is %v, %v", name, f, info.Mode(), err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "password"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, Options{Dir: dir, Address: "127.0.0.1:0"})
	if code, _, err := s.get("127.0.0.1", s.Access(), time.Now()); code != 200 || s.Access().Password == password {
		t.Errorf("without a password: %d, %v", code, err)
	}
}

// The certificate is renewed while the registry runs, and again after years; a clock that was years ahead does no harm.
func TestRenewal(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := make(chan time.Time, 1)
	clock <- now
	s := serve(t, Options{Dir: filepath.Join(t.TempDir(), "registry"), Address: "127.0.0.1:0", Now: func() time.Time {
		t := <-clock
		clock <- t
		return t
	}})
	var last *x509.Certificate
	for _, step := range []struct {
		pass    time.Duration
		renewed bool
	}{{0, true}, {time.Minute, false}, {30 * 24 * time.Hour, false}, {320 * 24 * time.Hour, true}, {5 * 365 * 24 * time.Hour, true}, {8 * 365 * 24 * time.Hour, true}, {-20 * 365 * 24 * time.Hour, true}} {
		<-clock
		now = now.Add(step.pass)
		clock <- now
		code, shown, err := s.get("127.0.0.1", s.Access(), now)
		if code != 200 { // a client reads ca.crt before it connects, which renews it
			code, shown, err = s.get("127.0.0.1", s.Access(), now)
		}
		if code != 200 {
			t.Fatalf("in %v: %d, %v", now, code, err)
		}
		if renewed := last == nil || !shown.Equal(last); renewed != step.renewed {
			t.Errorf("in %v: renewed %v, want %v", now, renewed, step.renewed)
		}
		last = shown
	}
}

// Names by which the registry is reached follow from where it listens.
func TestNames(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:6500": "127.0.0.1 of localhost,127.0.0.1", "[::1]:6500": "::1 of localhost,::1", "192.0.2.1:6500": "192.0.2.1 of 192.0.2.1",
		":6500": "127.0.0.1 of 127.0.0.1,localhost,192.0.2.1", "0.0.0.0:6500": "127.0.0.1 of 127.0.0.1,localhost,192.0.2.1", "evil.example:6500": "", "127.0.0.1": "",
	} {
		host, all, err := names(address, []string{"192.0.2.1"})
		got := ""
		if err == nil {
			got = host + " of " + strings.Join(all, ",")
		}
		if got != want {
			t.Errorf("%s: %q, %v, want %q", address, got, err, want)
		}
	}
}
