package apiserver_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/store"
	"skiff/internal/store/memory"
)

// sendAnonymous sends a request without credentials.
func (s *server) sendAnonymous(method, path string) answer {
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return answer{s.t, w.Code, w.Header(), w.Body.Bytes()}
}

func TestStrangersAreRefused(t *testing.T) {
	s := start(t)
	for _, path := range []string{"/api/v1/pods", "/version", "/metrics", "/nonsense"} {
		s.sendAnonymous("GET", path).refused(http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
	}
}

// authorizerFunc is a function as an authz.Authorizer.
type authorizerFunc func(*authz.Attributes) (authz.Decision, string, error)

func (f authorizerFunc) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	return f(a)
}

func TestForbidden(t *testing.T) {
	var asked authz.Attributes
	s := start(t, func(o *apiserver.Options) {
		o.Authorizer = authorizerFunc(func(a *authz.Attributes) (authz.Decision, string, error) {
			asked = *a
			return authz.NoOpinion, "", nil
		})
	})
	for _, c := range []struct{ method, path, message, verb string }{
		{"GET", inNamespace("pods", "a"), `pods "a" is forbidden: User "kubernetes-admin" cannot get resource "pods" in API group "" in the namespace "default"`, "get"},
		{"GET", "/api/v1/nodes", `nodes is forbidden: User "kubernetes-admin" cannot list resource "nodes" in API group "" at the cluster scope`, "list"},
		{"PUT", "/apis/apps/v1/namespaces/x/deployments/d/status", `deployments.apps "d" is forbidden: User "kubernetes-admin" cannot update resource "deployments/status" in API group "apps" in the namespace "x"`, "update"},
		{"DELETE", inNamespace("pods"), `pods is forbidden: User "kubernetes-admin" cannot deletecollection resource "pods" in API group "" in the namespace "default"`, "deletecollection"},
		{"GET", "/version", `forbidden: User "kubernetes-admin" cannot get path "/version"`, "get"},
	} {
		status := s.send(c.method, c.path, nil).refused(http.StatusForbidden, metav1.StatusReasonForbidden)
		if status.Message != c.message || asked.Verb != c.verb {
			t.Errorf("%s %s: %s, asked %s", c.method, c.path, status.Message, asked.Verb)
		}
	}
}

// slowStore is a store whose reads of the revision, which every consistent read needs, wait until open is called.
type slowStore struct {
	store.Store
	mu   sync.Mutex
	gate chan struct{}
}

func (s *slowStore) Revision(ctx context.Context) (int64, error) {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return s.Store.Revision(ctx)
}

func (s *slowStore) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

func (s *slowStore) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gate)
	s.gate = nil
}

func slowServer(t *testing.T, change func(*apiserver.Options)) (*server, *slowStore) {
	kept := &slowStore{Store: memory.New(memory.Options{})}
	s := settled(t, func(o *apiserver.Options) {
		o.Store = kept
		change(o)
	})
	return s, kept
}

func TestRequestsHaveTheirTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, kept := slowServer(t, func(o *apiserver.Options) { o.RequestTimeout = 40 * time.Second })
		kept.close()
		for query, want := range map[string]time.Duration{"": 40 * time.Second, "?timeout=5s": 5 * time.Second, "?timeout=2h": 40 * time.Second, "?timeout=0s": 40 * time.Second} {
			began := time.Now()
			status := s.send("GET", inNamespace("configmaps")+query, nil).refused(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
			if took := time.Since(began); took != want || status.Message != "Timeout: request did not complete within the allotted timeout" {
				t.Errorf("%q: %v, %s", query, took, status.Message)
			}
		}
		kept.open()
		s.send("GET", inNamespace("configmaps"), nil).ok()
	})
}

func TestPanicsAreSurvived(t *testing.T) {
	var logged strings.Builder
	s := start(t, func(o *apiserver.Options) {
		o.Log = slog.New(slog.NewTextHandler(&logged, nil))
		o.Authorizer = authorizerFunc(func(a *authz.Attributes) (authz.Decision, string, error) {
			if a.Name == "trap" {
				panic("walked into the trap")
			}
			return authz.Allow, "", nil
		})
	})
	status := s.send("GET", inNamespace("configmaps", "trap"), nil).refused(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	if !strings.Contains(status.Message, "This request caused apiserver to panic") || !strings.Contains(logged.String(), "walked into the trap") {
		t.Errorf("%s, logged %s", status.Message, logged.String())
	}
	s.send("GET", inNamespace("configmaps"), nil).ok()
	s.send("GET", inNamespace("configmaps", "trap"), nil).refused(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	metrics := string(s.send("GET", "/metrics", nil).ok().Body)
	if !strings.Contains(metrics, `code="500",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="GET",version="v1"} 2`) {
		t.Error("panics are not counted")
	}
}

// brokenWriter panics in the middle of a response.
type brokenWriter struct{ *httptest.ResponseRecorder }

func (brokenWriter) Write([]byte) (int, error) { panic("broken in the middle") }

// An answer that breaks off must not look complete.
func TestPanicInTheMiddle(t *testing.T) {
	s := start(t)
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("recovered %v", p)
		}
	}()
	s.ServeHTTP(brokenWriter{httptest.NewRecorder()}, httptest.NewRequest("GET", inNamespace("configmaps"), nil))
	t.Error("the connection was not aborted")
}

// panickingStore is a store that panics on Delete.
type panickingStore struct{ store.Store }

func (panickingStore) Delete(context.Context, string, int64) (int64, error) { panic("not this one") }

// A collection is deleted by several goroutines: what one of them does wrong is the request's failure, not the server's end.
func TestPanicInAnotherGoroutine(t *testing.T) {
	s := start(t, func(o *apiserver.Options) { o.Store = panickingStore{o.Store} })
	for i := range 20 {
		s.create(fmt.Sprintf("n%d", i), nil)
	}
	s.send("DELETE", inNamespace("configmaps"), nil).refused(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	s.send("GET", inNamespace("configmaps"), nil).ok()
}

// stalledStore is a store whose Delete waits until its context ends.
type stalledStore struct{ store.Store }

func (stalledStore) Delete(ctx context.Context, _ string, _ int64) (int64, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func TestDeleteCollectionRunsOutOfTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t, func(o *apiserver.Options) { o.Store = stalledStore{o.Store} })
		for i := range 20 {
			s.create(fmt.Sprintf("n%d", i), nil)
		}
		s.send("DELETE", inNamespace("configmaps")+"?timeout=5s", nil).refused(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
	})
}

// A body that is cut short is the client's mistake.
func TestTruncatedBody(t *testing.T) {
	s := start(t)
	r := httptest.NewRequest("POST", inNamespace("configmaps"), strings.NewReader(`{"metadata":{"name":"a"}`))
	r.ContentLength = 100
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	answer{t, w.Code, w.Header(), w.Body.Bytes()}.refused(http.StatusBadRequest, metav1.StatusReasonBadRequest)
}

// Who does not read what it watches is cut, so that it costs nothing for ever.
func TestStuckWatcher(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		s.create("a", nil)
		conn := overNetwork(t, s)()
		fmt.Fprintf(conn, "GET %s?watch=true HTTP/1.1\r\nHost: skiff\r\n\r\n", inNamespace("configmaps"))
		time.Sleep(29 * time.Second)
		first := make([]byte, 10)
		if _, err := io.ReadFull(conn, first); err != nil {
			t.Fatalf("cut too early: %v", err)
		}
		time.Sleep(time.Minute)
		if rest, err := io.ReadAll(conn); err == nil && strings.Contains(string(rest), "ADDED") {
			t.Errorf("still there after a minute: %s", rest)
		}
		// One that reads is not, however long nothing happens.
		patient := overNetwork(t, s)()
		fmt.Fprintf(patient, "GET %s?watch=true&resourceVersion=0 HTTP/1.1\r\nHost: skiff\r\n\r\n", inNamespace("configmaps"))
		lines := bufio.NewReader(patient)
		await := func(what string) {
			t.Helper()
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(line, what) {
					return
				}
			}
		}
		await(`"name":"a"`)
		time.Sleep(10 * time.Minute)
		s.create("b", nil)
		await(`"name":"b"`)
	})
}

// Likewise over HTTP/2, where the connection itself is well and only the stream is full.
func TestStuckWatcherHTTP2(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		for i := range 8 { // more than a client takes in unasked
			s.send("POST", inNamespace("configmaps"), configMap(fmt.Sprintf("large%d", i), "k", strings.Repeat("x", 900<<10))).ok()
		}
		dial := overNetwork(t, s)
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil }}
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		response, err := client.Get("http://skiff" + inNamespace("configmaps") + "?watch=true")
		if err != nil || response.ProtoMajor != 2 {
			t.Fatal(response, err)
		}
		defer response.Body.Close()
		time.Sleep(20 * time.Second)
		if got := s.openWatches(); got != "1\n" {
			t.Errorf("open after twenty seconds: %s", got)
		}
		time.Sleep(20 * time.Second)
		if got := s.openWatches(); got != "0\n" {
			t.Errorf("open after forty seconds: %s", got)
		}
		again, err := client.Get("http://skiff" + inNamespace("configmaps", "large0")) // the connection is still good
		if err != nil || again.StatusCode != 200 {
			t.Errorf("%v %v", again, err)
		}
		again.Body.Close()
	})
}

// Likewise over a WebSocket, where the connection is no longer HTTP's.
func TestStuckWebSocket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		s.send("POST", inNamespace("configmaps"), configMap("a")).ok()
		conn := overNetwork(t, s)()
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s?watch=true HTTP/1.1\r\nHost: skiff\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nOrigin: http://page\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", inNamespace("configmaps"))
		answer, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil) // a small buffer, so that the event is not read with it
		if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(answer, err)
		}
		time.Sleep(20 * time.Second)
		if got := s.openWatches(); got != "1\n" {
			t.Errorf("open after twenty seconds: %s", got)
		}
		time.Sleep(20 * time.Second)
		if got := s.openWatches(); got != "0\n" {
			t.Errorf("open after forty seconds: %s", got)
		}
	})
}

// openWatches is how many watches the server says are open.
func (s *server) openWatches() string {
	s.t.Helper()
	for line := range strings.Lines(string(s.send("GET", "/metrics", nil).ok().Body)) {
		if strings.HasPrefix(line, "apiserver_longrunning_requests{") {
			return line[strings.LastIndex(line, " ")+1:]
		}
	}
	return "none"
}

// The limit holds for bodies that do not say how long they are, too.
func TestLargeBodies(t *testing.T) {
	s := start(t)
	s.create("a", nil)
	fits := `{"metadata":{"name":"b"},"data":{"k":"` + strings.Repeat("x", 1<<20-100) + `"}}`
	large := `{"metadata":{"name":"b"},"data":{"k":"` + strings.Repeat("x", 3<<20) + `"}}`
	for _, c := range []struct{ method, path, contentType string }{
		{"POST", inNamespace("configmaps"), "application/json"}, {"PUT", inNamespace("configmaps", "a"), "application/yaml"},
		{"PATCH", inNamespace("configmaps", "a"), "application/merge-patch+json"}, {"DELETE", inNamespace("configmaps", "a"), "application/json"},
		{"PATCH", inNamespace("configmaps", "a") + "?fieldManager=m", "application/apply-patch+yaml"}, {"POST", inNamespace("configmaps"), protobuf},
	} {
		for _, body := range []any{large, io.MultiReader(strings.NewReader(large))} { // with and without a length
			status := s.send(c.method, c.path, body, "Content-Type", c.contentType).refused(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge)
			if status.Message != "Request entity too large: limit is 3145728" {
				t.Error(status.Message)
			}
		}
	}
	s.send("POST", inNamespace("configmaps"), io.MultiReader(strings.NewReader(fits))).ok()
}

// Large answers are compressed for clients that ask, unless they are on this machine.
func TestCompression(t *testing.T) {
	s := start(t)
	s.send("POST", inNamespace("configmaps"), configMap("large", "k", strings.Repeat("x", 200<<10))).ok()
	s.send("POST", inNamespace("secrets"), object{"metadata": object{"name": "small"}}).ok()
	plain := s.send("GET", inNamespace("configmaps"), nil).ok()
	version := regexp.MustCompile(`"resourceVersion":"[0-9]+"`) // a list's moves on with what the server writes at its start
	asked := 0
	get := func(path, from, encoding, accept string) *httptest.ResponseRecorder {
		asked++ // no two ask for quite the same: that would be compressed for all
		r := httptest.NewRequest("GET", fmt.Sprintf("%s?asked=%d", path, asked), nil)
		r.RemoteAddr = from
		r.Header.Set("Accept-Encoding", encoding)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	const far, near = "192.0.2.7:1234", "127.0.0.1:1234"
	for _, c := range []struct {
		path, from, encoding, accept string
		want                         bool
	}{
		{inNamespace("configmaps"), far, "gzip", "application/json", true}, {inNamespace("configmaps", "large"), far, "deflate, gzip;q=0.5", "application/json", true},
		{inNamespace("configmaps"), far, "gzip", protobuf, true}, {inNamespace("configmaps"), far, "gzip", "application/yaml", true},
		{inNamespace("configmaps"), far, "", "", false}, {inNamespace("configmaps"), far, "identity", "", false},
		{inNamespace("configmaps"), near, "gzip", "", false}, {inNamespace("configmaps"), "[::1]:5", "gzip", "", false}, {inNamespace("configmaps"), "", "gzip", "", false},
		{inNamespace("secrets"), far, "gzip", "", false},
	} {
		w := get(c.path, c.from, c.encoding, c.accept)
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != c.want {
			t.Errorf("%+v: compressed %v", c, got)
		}
		if length := w.Header().Get("Content-Length"); length != "" && length != strconv.Itoa(w.Body.Len()) {
			t.Errorf("%+v: says %s, is %d", c, length, w.Body.Len())
		}
		if !c.want {
			continue
		}
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(z)
		if err != nil || len(data) < 200<<10 || w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%+v: %d bytes, %v, %v", c, len(data), w.Header(), err)
		}
		if c.path == inNamespace("configmaps") && c.accept == "application/json" && !bytes.Equal(version.ReplaceAll(data, nil), version.ReplaceAll(plain.Body, nil)) {
			t.Error("another answer when compressed")
		}
	}
	// A peer that is this machine under another address.
	r := httptest.NewRequest("GET", inNamespace("configmaps"), nil).WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP("192.0.2.7")}))
	r.RemoteAddr = far
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Header().Get("Content-Encoding") != "" {
		t.Error("compressed for a neighbour")
	}
}

var metricLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^}]*\})? (\S+)$`)

func TestMetrics(t *testing.T) {
	s := start(t)
	s.create("a", nil)
	s.send("GET", inNamespace("configmaps", "a"), nil).ok()
	s.send("GET", inNamespace("configmaps"), nil).ok()
	body := string(s.send("GET", "/metrics", nil).ok().Body)
	series := map[string]float64{}
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "# HELP ") || strings.HasPrefix(line, "# TYPE ") {
			continue
		}
		m := metricLine.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("cannot be read: %s", line)
			continue
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		series[m[1]+m[2]] = value
	}
	for want, value := range map[string]float64{
		`apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="configmaps",scope="namespace",subresource="",verb="POST",version="v1"}`: 1,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="GET",version="v1"}`:   1,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="namespace",subresource="",verb="LIST",version="v1"}`: 1,
		`apiserver_resource_objects{group="",resource="configmaps"}`: 2, // one is the server\'s own
		`apiserver_resource_objects{group="",resource="namespaces"}`: 4,
	} {
		if series[want] != value {
			t.Errorf("%s is %v, want %v", want, series[want], value)
		}
	}
}

// What clients invent does not become part of a metric: it would grow without bound.
func TestMetricsForgetInventions(t *testing.T) {
	s := start(t)
	before := strings.Count(string(s.send("GET", "/metrics", nil).ok().Body), "\n")
	for i := range 200 {
		word := fmt.Sprintf("invented%d", i)
		for _, path := range []string{"/" + word, "/api/v1/" + word, "/apis/" + word + "/v1/pods", "/apis/apps/" + word + "/deployments", "/api/" + word + "/pods",
			inNamespace("pods", "a", word), inNamespace("endpoints", "a", word), "/api/v1/namespaces/" + word + "/pods/" + word, "/api/v1/nodes/n/proxy/" + word} {
			s.send("GET", path, nil)
			s.sendAnonymous("GET", path)
			s.sendAnonymous(strings.ToUpper(word), path)
		}
	}
	body := string(s.send("GET", "/metrics", nil).ok().Body)
	if strings.Contains(body, "invented") || strings.Contains(strings.ToLower(body), `verb="invented`) {
		t.Error("an invention is part of a metric")
	}
	if after := strings.Count(body, "\n"); after > before+1500 {
		t.Errorf("%d lines before, %d after", before, after)
	}
}

func TestHealth(t *testing.T) {
	var mu sync.Mutex
	var sick error
	s := start(t, func(o *apiserver.Options) {
		o.StoreHealthy = func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			return sick
		}
	})
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/readyz/etcd"} {
		if got := s.send("GET", path, nil); got.Code != 200 || string(got.Body) != "ok" {
			t.Errorf("%s: %d %s", path, got.Code, got.Body)
		}
	}
	verbose := string(s.send("GET", "/readyz?verbose", nil).ok().Body)
	if !strings.Contains(verbose, "[+]etcd ok\n") || !strings.HasSuffix(verbose, "readyz check passed\n") {
		t.Error(verbose)
	}
	mu.Lock()
	sick = errors.New("the disk is gone")
	mu.Unlock()
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/readyz/etcd"} {
		got := s.send("GET", path, nil)
		if got.Code != 500 || !strings.Contains(string(got.Body), "[-]etcd failed: reason withheld") || strings.Contains(string(got.Body), "disk") {
			t.Errorf("%s: %d %s", path, got.Code, got.Body)
		}
	}
	s.send("GET", "/readyz?exclude=etcd&exclude=etcd-readiness", nil).ok()
	s.send("GET", "/livez/ping", nil).ok()
	slis := string(s.send("GET", "/metrics/slis", nil).ok().Body)
	for _, want := range []string{
		`kubernetes_healthcheck{name="etcd",type="readyz"} 0`, `kubernetes_healthcheck{name="ping",type="livez"} 1`,
		`kubernetes_healthchecks_total{name="etcd",status="error",type="livez"} 2`, `kubernetes_healthchecks_total{name="etcd",status="success",type="livez"} 1`,
		`kubernetes_healthchecks_total{name="etcd",status="error",type="healthz"} 1`, `kubernetes_healthchecks_total{name="ping",status="success",type="livez"} 3`,
	} {
		if !strings.Contains(slis, want+"\n") {
			t.Errorf("%s is not in\n%s", want, slis)
		}
	}
}

// TestSLIs: every check is in /metrics/slis, also if nobody has asked for the server's health.
func TestSLIs(t *testing.T) {
	s := start(t)
	slis := string(s.send("GET", "/metrics/slis", nil).ok().Body)
	for kind, names := range map[string][]string{"livez": {"ping", "log", "etcd"}, "readyz": {"ping", "log", "etcd", "etcd-readiness", "informer-sync", "shutdown", "poststarthook/bootstrap-controller"}} {
		for _, name := range names {
			for _, want := range []string{fmt.Sprintf("kubernetes_healthcheck{name=%q,type=%q} 1", name, kind), fmt.Sprintf("kubernetes_healthchecks_total{name=%q,status=\"success\",type=%q} 1", name, kind)} {
				if !strings.Contains(slis, want+"\n") {
					t.Errorf("%s is not in\n%s", want, slis)
				}
			}
		}
	}
	if !strings.Contains(slis, "\nprocess_start_time_seconds ") {
		t.Errorf("no process_start_time_seconds in\n%s", slis)
	}
}

// A server that will stop says so to load balancers, and goes on.
func TestLeave(t *testing.T) {
	s := start(t)
	s.api.Leave()
	if got := s.send("GET", "/readyz", nil); got.Code != 500 || !strings.Contains(string(got.Body), "[-]shutdown failed: reason withheld") {
		t.Errorf("/readyz: %d %s", got.Code, got.Body)
	}
	for _, path := range []string{"/livez", "/healthz", "/api/v1/namespaces"} {
		s.send("GET", path, nil).ok()
	}
}

// gatedStore is a store whose reads wait until its gate is closed.
type gatedStore struct {
	store.Store
	gate chan struct{}
}

func (n gatedStore) List(ctx context.Context, prefix string, opts store.ListOptions) (store.ListResult, error) {
	select {
	case <-n.gate:
		return n.Store.List(ctx, prefix, opts)
	case <-ctx.Done():
		return store.ListResult{}, ctx.Err()
	}
}

func TestNotReadyYet(t *testing.T) {
	kept := gatedStore{memory.New(memory.Options{}), make(chan struct{})}
	api, err := apiserver.New(apiserver.Options{Store: kept, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t, api, kept}
	s.send("GET", inNamespace("configmaps"), nil).refused(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	s.send("POST", inNamespace("configmaps"), configMap("a")).refused(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	if got := s.send("GET", "/readyz", nil); got.Code != 500 {
		t.Errorf("ready: %d %s", got.Code, got.Body)
	}
	s.send("GET", "/livez", nil).ok()
	s.send("GET", "/apis", nil).ok()
	// A definition may serve the group: who hears 404 takes its objects for gone.
	s.send("GET", "/apis/example.com/v1", nil).refused(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := api.WaitReady(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("waited: %v", err)
	}
	close(kept.gate)
	if err := api.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.send("GET", inNamespace("configmaps"), nil).ok()
	if got := s.send("GET", "/apis/example.com/v1", nil); got.Code != http.StatusNotFound {
		t.Errorf("a group that nobody serves: %d %s", got.Code, got.Body)
	}
	api.Close()
	if err := api.WaitReady(t.Context()); err == nil {
		t.Error("ready after the end")
	}
	kept.Close()
}

func TestVersion(t *testing.T) {
	info := into[version.Info](start(t).send("GET", "/version", nil).ok())
	if info.GitVersion != "v1.37.1+skiff" || info.Major != "1" || info.Minor != "37" || info.EmulationMinor != "37" || info.MinCompatibilityMinor != "36" ||
		info.GoVersion != runtime.Version() || info.Platform != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("%+v", info)
	}
}

// What is in the store decides after a restart; what the server makes by itself it makes once.
func TestRestart(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			keep := unclosedStore{memory.New(memory.Options{})}
			state := func() map[string]int64 {
				out := map[string]int64{}
				all, err := keep.List(t.Context(), "/", store.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				for _, kv := range all.KVs {
					out[kv.Key] = kv.Revision
				}
				return out
			}
			s := settled(t, func(o *apiserver.Options) { o.Store, o.StorageJSON = keep, asJSON })
			s.create("a", map[string]string{"x": "y"})
			s.api.Close()
			before := state()
			s = settled(t, func(o *apiserver.Options) { o.Store, o.StorageJSON = keep, !asJSON }) // both forms are always read
			cm := into[corev1.ConfigMap](s.send("GET", inNamespace("configmaps", "a"), nil).ok())
			if cm.Labels["x"] != "y" || cm.ResourceVersion != fmt.Sprint(before["/registry/configmaps/default/a"]) || cm.UID == "" {
				t.Errorf("%+v", cm)
			}
			for key, revision := range state() {
				if before[key] != revision {
					t.Errorf("%s is at %d, was at %d", key, revision, before[key])
				}
			}
			s.api.Close()
			keep.Store.Close()
		})
	}
}

func TestAggregatedDiscovery(t *testing.T) {
	s := start(t)
	const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, path := range []string{"/api", "/apis"} {
		first := s.send("GET", path, nil, "Accept", accept).ok()
		tag := first.Header.Get("ETag")
		if tag == "" || !json.Valid(first.Body) {
			t.Errorf("%s: tag %q", path, tag)
		}
		if again := s.send("GET", path, nil, "Accept", accept, "If-None-Match", tag); again.Code != http.StatusNotModified || len(again.Body) != 0 {
			t.Errorf("%s: %d with %d bytes", path, again.Code, len(again.Body))
		}
		if other := s.send("GET", path, nil, "Accept", accept, "If-None-Match", `"other"`); other.Code != 200 || !bytes.Equal(other.Body, first.Body) {
			t.Errorf("%s: %d", path, other.Code)
		}
	}
	// Client-go finds the same in both forms.
	c := s.client("")
	groups, lists, err := c.Discovery().ServerGroupsAndResources()
	if err != nil || len(groups) < 15 || len(lists) < 15 {
		t.Errorf("%d groups, %d lists, %v", len(groups), len(lists), err)
	}
	aggregated := map[string]bool{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			aggregated[list.GroupVersion+"/"+r.Name] = true
		}
	}
	for _, g := range groups {
		for _, v := range g.Versions {
			path := "/apis/" + v.GroupVersion
			if g.Name == "" {
				path = "/api/v1"
			}
			for _, r := range into[metav1.APIResourceList](s.send("GET", path, nil).ok()).APIResources {
				if !aggregated[v.GroupVersion+"/"+r.Name] {
					t.Errorf("%s/%s is not in the aggregated document", v.GroupVersion, r.Name)
				}
			}
		}
	}
}

// Requests of one process may come as different users.
func TestInProcessIdentity(t *testing.T) {
	var asked string
	s := start(t, func(o *apiserver.Options) {
		o.Authorizer = authorizerFunc(func(a *authz.Attributes) (authz.Decision, string, error) {
			asked = a.User.Username
			return authz.Allow, "", nil
		})
	})
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/version", nil)
	s.api.ServeHTTP(w, r.WithContext(authn.InProcess(r.Context(), &authn.User{Username: "somebody"})))
	if w.Code != 200 || asked != "somebody" {
		t.Errorf("%d as %s", w.Code, asked)
	}
}
