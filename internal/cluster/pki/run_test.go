package pki

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// changeRecorder records the calls of OnChange.
type changeRecorder struct {
	mu    sync.Mutex
	names [][]string
	err   error
}

func (l *changeRecorder) record(_ context.Context, names []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = append(l.names, slices.Clone(names))
	return l.err
}

func (l *changeRecorder) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *changeRecorder) take() [][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.names = nil }()
	return l.names
}

// running runs a manager in a bubble of its own time.
func running(t *testing.T, change func(*Options), story func(t *testing.T, m *Manager, c *clock, l *changeRecorder)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c, l := &clock{}, &changeRecorder{}
		o := options(dir, c)
		o.OnChange = l.record
		if change != nil {
			change(&o)
		}
		m := open(t, o)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { m.Run(ctx) })
		synctest.Wait()
		story(t, m, c, l)
		cancel()
		wg.Wait()
	})
}

func TestRunRenewsOnTime(t *testing.T) {
	short := func(o *Options) { o.AuthorityLife, o.LeafLife = 10*time.Minute, time.Minute }
	running(t, short, func(t *testing.T, m *Manager, c *clock, l *changeRecorder) {
		seen := map[string]bool{}
		for range 30 * 60 { // each second for half an hour, in which even the authorities end three times
			time.Sleep(time.Second)
			synctest.Wait()
			for _, leaf := range m.leaves {
				p, err := m.Certificate(leaf.Name)
				if err != nil || c.now().After(p.Leaf.NotAfter) || c.now().Before(p.Leaf.NotBefore) {
					t.Fatalf("%s at %v: %v", leaf.Name, c.now(), err)
				}
			}
			for _, a := range authorities {
				if a := m.current.Load().authorities[a]; c.now().After(a.cert.NotAfter) {
					t.Fatalf("an authority has ended at %v", c.now())
				}
			}
			seen[serials(m)[Admin]] = true
		}
		if len(seen) < 30 || len(seen) > 60 {
			t.Errorf("%d certificates in half an hour", len(seen))
		}
		verify(t, m, c.now())
		heard := slices.Concat(l.take()...)
		for _, want := range []string{CA, FrontProxyCA, EtcdCA, Admin, APIServer, EtcdServer} {
			if !slices.Contains(heard, want) {
				t.Errorf("OnChange was not called for %s", want)
			}
		}
	})
}

func TestRunSleeps(t *testing.T) {
	running(t, nil, func(t *testing.T, m *Manager, c *clock, l *changeRecorder) {
		before := serials(m)
		time.Sleep(10 * hour)
		synctest.Wait()
		if got := l.take(); got != nil || serials(m)[Admin] != before[Admin] {
			t.Errorf("renewed without need: %v", got)
		}
	})
}

// A clock that is set, forwards or backwards, is noticed within a minute, or as soon as somebody connects.
func TestRunNoticesTheClock(t *testing.T) {
	for _, connects := range []bool{false, true} {
		running(t, nil, func(t *testing.T, m *Manager, c *clock, l *changeRecorder) {
			for _, shift := range []time.Duration{2 * year, 0, 30 * year, -5 * year, 0} {
				c.set(shift)
				if connects {
					m.Pool(CA)
				} else {
					time.Sleep(checkInterval)
				}
				synctest.Wait()
				verify(t, m, c.now())
				if got := l.take(); len(got) != 1 || !slices.Contains(got[0], Admin) || !slices.Contains(got[0], APIServer) {
					t.Errorf("at %v OnChange got %v", shift, got)
				}
			}
			c.set(-4 * time.Minute) // clocks differ by that much
			time.Sleep(checkInterval)
			synctest.Wait()
			if got := l.take(); got != nil {
				t.Errorf("renewed without need: %v", got)
			}
		})
	}
}

// Files that somebody removes or replaces are noticed.
func TestRunNoticesFiles(t *testing.T) {
	running(t, nil, func(t *testing.T, m *Manager, c *clock, l *changeRecorder) {
		certFile, keyFile := m.Files(Scheduler)
		if err := errors.Join(os.Remove(certFile), os.Truncate(keyFile, 3), os.Remove(m.file(accountKeys, ".key"))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkInterval)
		synctest.Wait()
		verify(t, m, c.now())
		if got := l.take(); len(got) != 1 || !slices.Equal(got[0], []string{accountKeys, Scheduler}) {
			t.Errorf("OnChange got %v", got)
		}
		time.Sleep(checkInterval)
		synctest.Wait()
		if got := l.take(); got != nil {
			t.Errorf("OnChange got %v again", got)
		}
	})
}

// An OnChange that fails is called again, each minute and not more often.
func TestRunTellsAgain(t *testing.T) {
	var log bytes.Buffer
	running(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }, func(t *testing.T, m *Manager, c *clock, l *changeRecorder) {
		l.fail(errors.New("no space left"))
		c.set(350 * day)
		for range 3 {
			m.Pool(CA)
			time.Sleep(checkInterval)
			synctest.Wait()
		}
		if got := l.take(); len(got) < 2 || len(got) > 4 || !slices.Equal(got[0], got[1]) {
			t.Errorf("OnChange got %v", got)
		}
		if !bytes.Contains(log.Bytes(), []byte("no space left")) {
			t.Errorf("the log says %s", log.String())
		}
		l.fail(nil)
		time.Sleep(3 * checkInterval)
		synctest.Wait()
		if got := l.take(); len(got) != 1 {
			t.Errorf("OnChange got %v", got)
		}
	})
}

// A directory that cannot be written keeps what there is in use, and is tried again.
func TestRunFails(t *testing.T) {
	running(t, nil, func(t *testing.T, m *Manager, c *clock, l *changeRecorder) {
		key := m.file(Admin, ".key") + partSuffix
		if err := os.Mkdir(key, 0o700); err != nil { // stands in the way, also of root
			t.Fatal(err)
		}
		if err := os.WriteFile(key+"/x", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		before := serials(m)
		c.set(350 * day)
		time.Sleep(2 * checkInterval)
		synctest.Wait()
		if got := l.take(); got != nil || serials(m)[Admin] != before[Admin] {
			t.Errorf("OnChange got %v", got)
		}
		if err := os.RemoveAll(key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkInterval)
		synctest.Wait()
		verify(t, m, c.now())
		if serials(m)[Admin] == before[Admin] {
			t.Error("not renewed when it was possible again")
		}
	})
}

// dialTLS gives what http.Transport takes as DialTLSContext: it connects with what is current at the time, and offers the server protocols.
func dialTLS(m *Manager, leaf, authority string, protocols ...string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		config, err := m.ClientConfig(leaf, authority)
		if err != nil {
			return nil, err
		}
		config.NextProtos = protocols
		return (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
	}
}

// Certificates change under connections that go on; new connections get the new ones, on both sides.
func TestRotationUnderLiveConnections(t *testing.T) {
	c := &clock{}
	m := open(t, options(t.TempDir(), c))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Client", r.TLS.PeerCertificates[0].SerialNumber.String())
		w.Header().Set("Connection-From", r.RemoteAddr)
	}))
	// The test server adds a certificate of its own to what it serves with, so it gets the connections ready made.
	config := m.ServerConfig(&tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, APIServer, CA, FrontProxyCA)
	server.Listener = tls.NewListener(server.Listener, config)
	server.Start()
	defer server.Close()
	url := "https://" + server.Listener.Addr().String()

	newClient := func() *http.Client {
		return &http.Client{Transport: &http.Transport{DialTLSContext: dialTLS(m, Scheduler, CA, "http/1.1")}}
	}
	get := func(client *http.Client) (from, clientSerial string, state *tls.ConnectionState) {
		t.Helper()
		r, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r.Header.Get("Connection-From"), r.Header.Get("Client"), r.TLS
	}
	held := newClient()
	defer held.CloseIdleConnections()
	first, client, _ := get(held)
	if client != serials(m)[Scheduler] {
		t.Error("the server saw another client")
	}
	for _, shift := range []time.Duration{350 * day, 2 * year, 30 * year, 0} {
		c.set(shift)
		before := serials(m)
		if err := m.check(); err != nil {
			t.Fatal(err)
		}
		if serials(m)[Scheduler] == before[Scheduler] || serials(m)[APIServer] == before[APIServer] {
			t.Fatal("not renewed")
		}
		if from, old, _ := get(held); from != first || old != client {
			t.Errorf("at %v the connection was replaced", shift)
		}
		other := newClient()
		_, seen, _ := get(other)
		if seen != serials(m)[Scheduler] {
			t.Errorf("at %v a new connection shows an old client certificate", shift)
		}
		other.CloseIdleConnections()
		conn, err := dialTLS(m, Scheduler, CA)(t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		state := conn.(*tls.Conn).ConnectionState()
		if state.PeerCertificates[0].SerialNumber.String() != serials(m)[APIServer] {
			t.Errorf("at %v a new connection shows an old server certificate", shift)
		}
		conn.Close()
	}
	if _, err := dialTLS(m, Scheduler, EtcdCA)(t.Context(), "tcp", server.Listener.Addr().String()); err == nil {
		t.Error("a server of another authority is trusted")
	}
	if _, err := dialTLS(m, "nobody", CA)(t.Context(), "tcp", server.Listener.Addr().String()); err == nil {
		t.Error("connected without a certificate")
	}
}

// A server tells its clients which authorities it asks for, and leaves the verdict to who authenticates.
func TestServerAsksForCertificates(t *testing.T) {
	m := open(t, options(t.TempDir(), &clock{}))
	config := m.ServerConfig(&tls.Config{NextProtos: []string{"h2"}}, APIServer, CA, FrontProxyCA)
	got, err := config.GetConfigForClient(&tls.ClientHelloInfo{})
	if err != nil || got.ClientAuth != tls.RequestClientCert || !slices.Equal(got.NextProtos, []string{"h2"}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, a := range []string{CA, FrontProxyCA} {
		if !slices.ContainsFunc(got.ClientCAs.Subjects(), func(s []byte) bool { return bytes.Equal(s, m.current.Load().authorities[a].cert.RawSubject) }) {
			t.Errorf("clients are not asked for certificates of %s", a)
		}
	}
	if got, err := m.ServerConfig(&tls.Config{}, EtcdServer).GetConfigForClient(nil); err != nil || got.ClientAuth != tls.NoClientCert {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := m.ServerConfig(&tls.Config{}, "none").GetConfigForClient(nil); err == nil {
		t.Error("served without a certificate")
	}
}
