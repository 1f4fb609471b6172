package aggregation_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver"
	"skiff/internal/apitest"
)

// Requests of every kind come to the server of their group version and back as they are, over HTTP/2.
func TestForwarded(t *testing.T) {
	c, b := newWardle(t)
	b.handle(flunders+"/", echo)
	b.handle(flunders, echo)
	for _, one := range []struct{ method, path, body string }{
		{"GET", flunders + "/a", ""},
		{"GET", flunders + "?limit=2&labelSelector=a%3Db", ""},
		{"HEAD", flunders + "/a", ""},
		{"POST", flunders + "?dryRun=All", strings.Repeat("body ", 100_000)},
		{"PUT", flunders + "/a/status", `{"kind":"Flunder"}`},
		{"PATCH", flunders + "/a", `{}`},
		{"DELETE", flunders + "/a", `{}`},
		{"DELETE", flunders + "/", ""},
		{"POST", flunders + "/a%20b/scale", ``},
	} {
		got := c.send(c.http, one.method, one.path, one.body, "Content-Type", "application/x-own")
		path, query, _ := strings.Cut(one.path, "?")
		want := fmt.Sprintf("%s %s ?%s %d application/x-own", one.method, strings.ReplaceAll(path, "%20", " "), sortedQuery(query), len(one.body))
		if one.method == "HEAD" {
			want = ""
		}
		if got.code != http.StatusTeapot || got.body != want || got.header.Get("X-Own") != "said" {
			t.Errorf("%s %s: %d %q %v, want %q", one.method, one.path, got.code, got.body, got.header, want)
		}
		if n := len(got.header.Values("Audit-Id")); n != 1 || len(got.header.Values("Cache-Control")) != 1 {
			t.Errorf("headers that this server sets as well: %v", got.header)
		}
		sent := b.received()
		if last := sent[len(sent)-1]; last.header.Get("Audit-Id") != got.header.Get("Audit-Id") || last.proto != "HTTP/2.0" || last.serverName != "wardle.default.svc" {
			t.Errorf("the request was %+v", last)
		}
	}
	if got := c.get("/apis/" + group + "/v1"); !strings.Contains(got.body, `"kind":"APIResourceList"`) {
		t.Errorf("the discovery of the group version: %+v", got)
	}
	if got := c.get("/apis/" + group + "/v1beta1/flunders"); got.code != http.StatusNotFound {
		t.Errorf("a version that nobody serves: %d %s", got.code, got.body)
	}
}

func sortedQuery(query string) string {
	parts := strings.Split(query, "&")
	slices.Sort(parts)
	return strings.Join(parts, "&")
}

// echo answers with what it was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Own", "said")
	w.Header().Set("Audit-Id", r.Header.Get("Audit-Id"))
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(http.StatusTeapot)
	fmt.Fprintf(w, "%s %s ?%s %d %s", r.Method, r.URL.Path, r.URL.RawQuery, len(body), r.Header.Get("Content-Type"))
}

// The other server is told who asks, by a front proxy whose certificate the published authority has signed, and nothing else that could pass for a user.
func TestIdentity(t *testing.T) {
	c, b := newWardle(t)
	b.handle(flunders, echo)
	forged := []string{"X-Remote-User", "root", "X-Remote-Uid", "0", "X-Remote-Group", "system:masters", "X-Remote-Extra-Scopes", "all", "X-Remote-Extra-Other", "x"}
	impersonate := []string{"Impersonate-User", "anna", "Impersonate-Uid", "7", "Impersonate-Group", "brewers", "Impersonate-Group", "system:masters", "Impersonate-Extra-Scopes", "some", "Impersonate-Extra-example.com%2fteam", "red"}
	config := c.Config()
	config.NextProtos = []string{"http/1.1"}
	overHTTP1 := c.clientOf(config)
	for name, one := range map[string]struct {
		header, want []string
	}{
		"removed":      {append(slices.Clone(impersonate), "Connection", "X-Remote-User, X-Remote-Uid, X-Remote-Group, X-Remote-Extra-Scopes"), []string{"X-Remote-Extra-Example.com%2fteam: red", "X-Remote-Extra-Scopes: some", "X-Remote-Group: brewers", "X-Remote-Group: system:masters", "X-Remote-Group: system:authenticated", "X-Remote-Uid: 7", "X-Remote-User: anna"}},
		"its own":      {forged, []string{"X-Remote-Group: system:masters", "X-Remote-Group: system:authenticated", "X-Remote-User: kubernetes-admin"}},
		"impersonated": {append(slices.Clone(impersonate), forged...), []string{"X-Remote-Extra-Example.com%2fteam: red", "X-Remote-Extra-Scopes: some", "X-Remote-Group: brewers", "X-Remote-Group: system:masters", "X-Remote-Group: system:authenticated", "X-Remote-Uid: 7", "X-Remote-User: anna"}},
	} {
		if got := c.send(overHTTP1, "GET", flunders, "", one.header...); got.code != http.StatusTeapot {
			t.Fatalf("%s: %d %s", name, got.code, got.body)
		}
		sent := b.received()
		last := sent[len(sent)-1]
		var told []string
		for key, values := range last.header {
			for _, value := range values {
				if strings.HasPrefix(key, "X-Remote-") {
					told = append(told, key+": "+value)
				}
			}
			if key == "Authorization" || strings.HasPrefix(key, "Impersonate-") {
				t.Errorf("%s: the other server gets %s", name, key)
			}
		}
		slices.SortStableFunc(told, func(a, b string) int { return strings.Compare(before(a), before(b)) })
		if !slices.Equal(told, one.want) || last.certificate != "front-proxy-client" {
			t.Errorf("%s: the other server is told %q by %q, want %q", name, told, last.certificate, one.want)
		}
	}
}

func before(header string) string {
	key, _, _ := strings.Cut(header, ":")
	return key
}

// A request is authorized here, before it is forwarded, and admitted there.
func TestAuthorizedHere(t *testing.T) {
	c, b := newWardle(t)
	b.handle("/apis/"+group+"/v1/namespaces/", echo)
	anna := c.clientOf(c.ConfigFor("anna"))
	got := c.send(anna, "GET", flunders, "")
	if got.code != http.StatusForbidden || !strings.Contains(got.body, `flunders.wardle.example.com is forbidden: User \"anna\" cannot list resource \"flunders\" in API group \"wardle.example.com\" in the namespace \"default\"`) {
		t.Errorf("without permission: %d %s", got.code, got.body)
	}
	if n := len(b.received()); n != 0 {
		t.Errorf("the other server got %d requests of somebody who may do nothing", n)
	}
	if got := c.send(anna, "GET", "/apis/"+group+"/v1", ""); got.code != http.StatusOK {
		t.Errorf("discovery, which everybody may read: %d %s", got.code, got.body)
	}
	// NamespaceLifecycle would refuse this here.
	if got := c.send(c.http, "POST", "/apis/"+group+"/v1/namespaces/none/flunders", "{}"); got.code != http.StatusTeapot {
		t.Errorf("a create in a namespace that does not exist: %d %s", got.code, got.body)
	}
}

// Each event of a watch arrives before the next is sent. When the client goes, the request to the other server ends.
func TestWatchIsStreamed(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) { watchIsStreamed(t, proto) })
	}
}

func watchIsStreamed(t *testing.T, proto string) {
	c, b := newWardle(t)
	next, ended := make(chan string), make(chan struct{})
	b.handle(flunders, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		w.Header().Set("Content-Type", "application/json")
		for {
			select {
			case event := <-next:
				_, _ = io.WriteString(w, event)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	client := c.http
	if proto == "HTTP/1.1" {
		config := c.Config()
		config.NextProtos = []string{"http/1.1"}
		client = c.clientOf(config)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", c.URL()+flunders+"?watch=true", nil)
	c.must(err)
	go func() { next <- "{\"n\":0}\n" }() // some response is needed for Do to return
	response, err := client.Do(r)
	c.must(err)
	defer response.Body.Close()
	if response.Proto != proto {
		t.Errorf("the client speaks %s", response.Proto)
	}
	lines := bufio.NewReader(response.Body)
	for i := range 5 {
		if i > 0 {
			next <- fmt.Sprintf("{\"n\":%d}\n", i)
		}
		line, err := lines.ReadString('\n')
		if want := fmt.Sprintf("{\"n\":%d}\n", i); err != nil || line != want {
			t.Fatalf("got %q, %v; want %q", line, err, want)
		}
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(timeout):
		t.Error("the other server goes on sending to a client that has gone")
	}
}

// Watches end when this server stops, as its own do: its listener waits for them.
func TestWatchEndsWithTheServer(t *testing.T) {
	var api *apiserver.Server
	c, b := newWardle(t, apitest.WithComponent(func(p apitest.Place) (apitest.Component, error) {
		api = p.API.(*apiserver.Server)
		return apitest.Component{Name: "none", Run: func(ctx context.Context) error { <-ctx.Done(); return nil }, Ready: func(context.Context) error { return nil }}, nil
	}))
	ended := make(chan struct{})
	b.handle(flunders, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	r, err := http.NewRequestWithContext(t.Context(), "GET", c.URL()+flunders+"?watch=true", nil)
	c.must(err)
	response, err := c.http.Do(r)
	c.must(err)
	defer response.Body.Close()
	api.Drain()
	select {
	case <-ended:
	case <-time.After(timeout):
		t.Error("the watch goes on")
	}
	_, _ = io.Copy(io.Discard, response.Body) // it ends
}

// A component in this server's process sees what other servers serve as its own.
func TestInProcess(t *testing.T) {
	c, b := newWardle(t)
	const list = `{"kind":"FlunderList","apiVersion":"wardle.example.com/v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","namespace":"default"}}]}`
	b.handle(flunders, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			sendJSON(w, list, "")
			return
		}
		sendJSON(w, `{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"b","namespace":"default","resourceVersion":"8"}}}`+"\n", "")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	component := c.InProcess("kube-controller-manager", "system:kube-controller-manager", "system:masters")
	lists, err := component.Kubernetes().Discovery().ServerPreferredResources()
	if err != nil || !slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == group+"/v1" && len(l.APIResources) == 1 }) {
		t.Errorf("discovery: %v, %v", lists, err)
	}
	metadata := component.Metadata().Resource(gvr("flunders")).Namespace("default")
	objects, err := metadata.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(objects.Items) != 1 || objects.Items[0].Name != "a" {
		t.Errorf("list: %v, %v", objects, err)
	}
	w, err := metadata.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "7"})
	c.must(err)
	defer w.Stop()
	select {
	case e := <-w.ResultChan():
		if m, ok := e.Object.(*metav1.PartialObjectMetadata); !ok || m.Name != "b" {
			t.Errorf("the watch says %v", e)
		}
	case <-time.After(timeout):
		t.Error("the watch says nothing")
	}
	sent := b.received()
	if last := sent[len(sent)-1]; last.header.Get("X-Remote-User") != "system:kube-controller-manager" {
		t.Errorf("the component is %v", last.header)
	}
}

// A response that the other server does not finish is none that a client could take for the whole.
func TestTruncated(t *testing.T) {
	c, b := newWardle(t)
	b.handle(flunders, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"items":[`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	response, err := c.http.Get(c.URL() + flunders)
	if err == nil {
		defer response.Body.Close()
		_, err = io.ReadAll(response.Body)
	}
	if err == nil {
		t.Error("a response that was cut looks complete")
	}
	_, err = c.InProcess("component", "admin", "system:masters").Metadata().Resource(gvr("flunders")).Namespace("default").List(t.Context(), metav1.ListOptions{})
	if !errorsWith(err, io.ErrUnexpectedEOF, "aborted") {
		t.Errorf("in process: %v", err)
	}
}

// A server that does not answer in time is answered for with the API's timeout.
func TestTimeout(t *testing.T) {
	c, b := newWardle(t)
	ended := make(chan struct{}, 1)
	b.handle(flunders, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		ended <- struct{}{}
	})
	got := c.get(flunders + "?timeout=50ms")
	if got.code != http.StatusGatewayTimeout || !strings.Contains(got.body, `"reason":"Timeout"`) {
		t.Errorf("%d %s", got.code, got.body)
	}
	select {
	case <-ended:
	case <-time.After(timeout):
		t.Error("the other server still works on it")
	}
}

// Redirects are refused, as they could lead the client's next request anywhere, unless the server is told to forward them.
func TestRedirects(t *testing.T) {
	for forward, want := range map[bool]int{false: http.StatusBadGateway, true: http.StatusFound} {
		c, b := newWardle(t, apitest.WithServer(func(o *apiserver.Options) { o.ForwardRedirects = forward }))
		b.handle(flunders, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.example/", http.StatusFound)
		})
		client := *c.http
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		if got := c.send(&client, "GET", flunders, ""); got.code != want || forward != (got.header.Get("Location") != "") {
			t.Errorf("forwarded %t: %d %v %s", forward, got.code, got.header, got.body)
		}
	}
}

// An endpoint where nobody listens is no reason to fail while there is another: its pod may just have ended.
func TestOtherEndpointsAreTried(t *testing.T) {
	c := newCluster(t)
	b := c.newBackend("192.0.2.1")
	b.handle(flunders, echo)
	c.service("wardle", "192.0.2.1", "192.0.2.2")
	c.create(services, c.apiService(group, "v1", "wardle"))
	c.awaitServed("v1." + group)
	failed := 0
	for range 40 {
		switch got := c.send(c.http, "POST", flunders, "whole body"); {
		case got.code == http.StatusServiceUnavailable:
			failed++
		case got.code != http.StatusTeapot || !strings.Contains(got.body, " 10 "):
			t.Fatalf("%d %s", got.code, got.body)
		}
	}
	if failed > 15 { // one in 16 is expected to try the same four times
		t.Errorf("%d of 40 requests failed", failed)
	}
}

// How many requests a server works on at once is bounded, so that one that hangs does not hold all memory. Others do not notice.
func TestRequestsInFlightAreBounded(t *testing.T) {
	c, b := newWardle(t)
	release := make(chan struct{})
	b.handle(flunders, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	codes := make(chan int)
	const sent = 450
	for range sent {
		go func() {
			r, _ := http.NewRequestWithContext(t.Context(), "GET", c.URL()+flunders, nil)
			code := 0
			if response, err := c.http.Do(r); err == nil {
				response.Body.Close()
				code = response.StatusCode
			}
			codes <- code
		}()
	}
	refused := 0
	for ; refused < sent-400; refused++ {
		if code := <-codes; code != http.StatusTooManyRequests {
			t.Fatalf("request %d was answered with %d", refused, code)
		}
	}
	if _, err := c.api.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("a request for this server: %v", err)
	}
	close(release)
	for range 400 {
		if code := <-codes; code != http.StatusOK {
			t.Fatalf("a request that was forwarded was answered with %d", code)
		}
	}
}
