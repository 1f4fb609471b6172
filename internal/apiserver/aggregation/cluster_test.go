package aggregation_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authn/clientcert"
	"skiff/internal/apiserver/authn/requestheader"
	"skiff/internal/apitest"
	"skiff/internal/cluster/pki"
)

const (
	group    = "wardle.example.com"
	flunders = "/apis/" + group + "/v1/namespaces/default/flunders"
	// services is the path of APIServices.
	services = "/apis/apiregistration.k8s.io/v1/apiservices"
	// timeout is how long a condition may take to hold.
	timeout = 20 * time.Second
)

// cluster is an API server that reaches the endpoints of Services at addresses that the test chooses, as through tunnels.
type cluster struct {
	t testing.TB
	*apitest.Server
	api     kubernetes.Interface
	http    *http.Client // the administrator
	serving *pki.Authority
	front   *pki.Authority

	mu sync.Mutex
	// routes has where addresses lead. Others refuse connections.
	routes map[string]string
}

func newCluster(t testing.TB, opts ...apitest.Option) *cluster {
	t.Helper()
	c := &cluster{t: t, routes: map[string]string{}, serving: authority(t, pki.CA), front: authority(t, pki.FrontProxyCA)}
	proxy, err := c.front.Issue(pki.Leaf{Name: pki.FrontProxyClient, Authority: pki.FrontProxyCA, User: "front-proxy-client", Client: true}, time.Now(), time.Hour)
	c.must(err)
	trusted, err := clientcert.NewBundle(c.front.PEM())
	c.must(err)
	c.Server = apitest.Start(t, append([]apitest.Option{apitest.WithServer(func(o *apiserver.Options) {
		o.Dial, o.ProxyClientCertificate = c.dial, func() (*tls.Certificate, error) { return &proxy, nil }
		o.Authentication.RequestHeader, o.Authentication.RequestHeaderAllowedNames = requestheader.Standard, []string{"front-proxy-client"}
		o.Authentication.RequestHeaderClientCAs = func() *clientcert.Bundle { return trusted }
	})}, opts...)...)
	c.api = c.Client()
	c.http = c.clientOf(c.Config())
	return c
}

func authority(t testing.TB, name string) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority(name, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) clientOf(config *rest.Config) *http.Client {
	c.t.Helper()
	client, err := rest.HTTPClientFor(config)
	c.must(err)
	return client
}

func (c *cluster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	to := c.routes[address]
	c.mu.Unlock()
	if to == "" {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return (&net.Dialer{}).DialContext(ctx, network, to)
}

// lead has an address lead to a listener; nowhere if that is nil.
func (c *cluster) lead(address string, to net.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.routes, address)
	if to != nil {
		c.routes[address] = to.Addr().String()
	}
}

// eventually waits until a condition holds; holds returns what is missing, or "".
func (c *cluster) eventually(holds func() (missing string)) {
	c.t.Helper()
	var missing string
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if missing = holds(); missing == "" {
			return
		}
	}
	c.t.Fatalf("not within %v: %s", timeout, missing)
}

// answer is a response that was read.
type answer struct {
	code   int
	header http.Header
	body   string
}

func (c *cluster) send(client *http.Client, method, path, body string, header ...string) answer {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.URL()+path, strings.NewReader(body))
	c.must(err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	response, err := client.Do(r)
	c.must(err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	c.must(err)
	return answer{response.StatusCode, response.Header, string(data)}
}

func (c *cluster) get(path string, header ...string) answer {
	c.t.Helper()
	return c.send(c.http, http.MethodGet, path, "", header...)
}

// decode reads a JSON document of the API.
func (c *cluster) decode(path string, into any, header ...string) {
	c.t.Helper()
	a := c.get(path, header...)
	if a.code != http.StatusOK {
		c.t.Fatalf("GET %s: %d %s", path, a.code, a.body)
	}
	c.must(json.Unmarshal([]byte(a.body), into))
}

func (c *cluster) create(path string, obj any) {
	c.t.Helper()
	body, err := json.Marshal(obj)
	c.must(err)
	if a := c.send(c.http, http.MethodPost, path, string(body), "Content-Type", "application/json"); a.code != http.StatusCreated {
		c.t.Fatalf("POST %s: %d %s", path, a.code, a.body)
	}
}

func (c *cluster) patch(path, body string) {
	c.t.Helper()
	if a := c.send(c.http, http.MethodPatch, path, body, "Content-Type", "application/merge-patch+json"); a.code != http.StatusOK {
		c.t.Fatalf("PATCH %s: %d %s", path, a.code, a.body)
	}
}

func (c *cluster) delete(path string) {
	c.t.Helper()
	if a := c.send(c.http, http.MethodDelete, path, ""); a.code != http.StatusOK {
		c.t.Fatalf("DELETE %s: %d %s", path, a.code, a.body)
	}
}

// service creates a Service in the namespace default whose port 443 leads to the addresses.
func (c *cluster) service(name string, addresses ...string) {
	c.t.Helper()
	_, err := c.api.CoreV1().Services("default").Create(c.t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}}, metav1.CreateOptions{})
	c.must(err)
	c.endpoints(name, addresses...)
}

func (c *cluster) endpoints(service string, addresses ...string) {
	c.t.Helper()
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To[int32](8443)}}}
	for _, address := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	_, err := c.api.DiscoveryV1().EndpointSlices("default").Create(c.t.Context(), slice, metav1.CreateOptions{})
	c.must(err)
}

// apiService returns the APIService of a group version that a Service of the namespace default serves.
func (c *cluster) apiService(group, version, service string) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{TypeMeta: metav1.TypeMeta{Kind: "APIService", APIVersion: "apiregistration.k8s.io/v1"}, ObjectMeta: metav1.ObjectMeta{Name: version + "." + group},
		Spec: apiregistrationv1.APIServiceSpec{Group: group, Version: version, GroupPriorityMinimum: 2000, VersionPriority: 200, CABundle: c.serving.PEM(),
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: service}}}
}

// condition returns "STATUS REASON: MESSAGE" of the condition Available of an APIService.
func (c *cluster) condition(name string) string {
	c.t.Helper()
	var s apiregistrationv1.APIService
	a := c.get(services + "/" + name)
	if a.code == http.StatusNotFound {
		return "there is no such APIService"
	}
	c.must(json.Unmarshal([]byte(a.body), &s))
	for _, one := range s.Status.Conditions {
		if one.Type == apiregistrationv1.Available {
			return fmt.Sprintf("%s %s: %s", one.Status, one.Reason, one.Message)
		}
	}
	return ""
}

// awaitCondition waits until the condition Available of an APIService begins with text.
func (c *cluster) awaitCondition(name, text string) {
	c.t.Helper()
	c.eventually(func() string {
		if got := c.condition(name); !strings.HasPrefix(got, text) {
			return fmt.Sprintf("the condition %q; it is %q", text, got)
		}
		return ""
	})
}

const passed = "True Passed: all checks passed"

// awaitServed waits until discovery has what the server of an APIService says.
func (c *cluster) awaitServed(name string) {
	c.t.Helper()
	c.awaitCondition(name, passed)
	c.awaitFreshness(name, "Current")
}

// request is a request that a backend has received.
type request struct {
	method, path, query, body string
	header                    http.Header
	proto                     string
	certificate               string // common name of the client, whose certificate has been verified; empty if none was sent
	serverName                string
}

// backend is an aggregated API server, which speaks HTTP/2 as well. It serves flunders of group wardle.example.com, and what handle says.
type backend struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	handlers map[string]http.HandlerFunc // by path
	requests []request                   // but for those of the aggregator
	v2       bool                        // it has the aggregated form of discovery
}

// newBackend starts a backend and has an address lead to it. Its certificate is for the given hosts, for the Service wardle if there are none.
func (c *cluster) newBackend(address string, hosts ...string) *backend {
	c.t.Helper()
	if len(hosts) == 0 {
		hosts = []string{"wardle.default.svc"}
	}
	certificate, err := c.serving.Issue(pki.Leaf{Name: "wardle", Authority: pki.CA, User: "wardle", Hosts: hosts}, time.Now(), time.Hour)
	c.must(err)
	b := &backend{t: c.t, handlers: map[string]http.HandlerFunc{}, v2: true}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(b.serve))
	b.EnableHTTP2 = true
	b.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: c.publishedCA()}
	b.Config.ErrorLog = log.New(io.Discard, "", 0)
	b.StartTLS()
	c.t.Cleanup(func() {
		b.CloseClientConnections()
		b.Close()
	})
	c.lead(address+":8443", b.Listener)
	return b
}

// publishedCA returns the authority of front proxies that the cluster publishes for aggregated servers.
func (c *cluster) publishedCA() *x509.CertPool {
	c.t.Helper()
	m, err := c.api.CoreV1().ConfigMaps("kube-system").Get(c.t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	c.must(err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(m.Data["requestheader-client-ca-file"])) {
		c.t.Fatalf("there is no authority of front proxies: %v", m.Data)
	}
	return pool
}

// handle has a path, and all below it if it ends in a slash, answered.
func (b *backend) handle(path string, h http.HandlerFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handlers[path] = h
}

// received returns the requests that others than the aggregator have sent.
func (b *backend) received() []request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.requests)
}

func (b *backend) serve(w http.ResponseWriter, r *http.Request) {
	b.note(r)
	b.mu.Lock()
	h, v2 := b.handlers[r.URL.Path], b.v2
	for path, one := range b.handlers {
		if h == nil && strings.HasSuffix(path, "/") && strings.HasPrefix(r.URL.Path, path) {
			h = one
		}
	}
	b.mu.Unlock()
	document := map[string]string{"/apis/" + group + "/v1": legacyDocument, "/openapi/v3": v3Root, "/openapi/v3/apis/" + group + "/v1": v3Document, "/openapi/v2": v2Document}[r.URL.Path]
	switch {
	case h != nil:
		h(w, r)
	case r.URL.Path == "/apis" && v2:
		sendJSON(w, aggregatedDocument, ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	case document != "":
		sendJSON(w, document, "")
	default:
		http.NotFound(w, r)
	}
}

func sendJSON(w http.ResponseWriter, document, parameters string) {
	w.Header().Set("Content-Type", "application/json"+parameters)
	_, _ = io.WriteString(w, document)
}

// note remembers a request, unless it is the aggregator's own.
func (b *backend) note(r *http.Request) {
	if r.Header.Get("X-Remote-User") == "system:kube-aggregator" {
		return
	}
	one := request{method: r.Method, path: r.URL.Path, query: r.URL.RawQuery, header: r.Header.Clone(), proto: r.Proto, serverName: r.TLS.ServerName}
	if len(r.TLS.VerifiedChains) > 0 {
		one.certificate = r.TLS.VerifiedChains[0][0].Subject.CommonName
	}
	if r.Method == http.MethodPost && r.Header.Get("Upgrade") == "" {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		one.body = string(body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests = append(b.requests, one)
}

const (
	aggregatedDocument = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
		{"metadata":{"name":"other.example.com"},"versions":[{"version":"v1","resources":[{"resource":"others","scope":"Cluster","verbs":["get"]}]}]},
		{"metadata":{"name":"wardle.example.com"},"versions":[{"version":"v1","resources":[
			{"resource":"flunders","scope":"Namespaced","singularResource":"flunder","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"shortNames":["fl"],
			 "responseKind":{"group":"wardle.example.com","version":"v1","kind":"Flunder"},"subresources":[{"subresource":"status","verbs":["get"]}]}]}]}]}`
	legacyDocument = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"wardle.example.com/v1","resources":[
		{"name":"flunders","singularName":"flunder","namespaced":true,"kind":"Flunder","verbs":["get","list"]},
		{"name":"flunders/status","singularName":"","namespaced":true,"kind":"Flunder","verbs":["get"]}]}`
	v3Root     = `{"paths":{"apis/wardle.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/wardle.example.com/v1?hash=1"}}}`
	v3Document = `{"openapi":"3.0.0","info":{"title":"wardle","version":"v1"},"paths":{"/apis/wardle.example.com/v1/":{}},"components":{"schemas":{"com.example.wardle.v1.Flunder":{"type":"object"}}}}`
	v2Document = `{"swagger":"2.0","info":{"title":"wardle","version":"v1"},"paths":{"/apis/wardle.example.com/v1/":{},"/apis/apps/v1/stolen":{}},
		"definitions":{"com.example.wardle.v1.Flunder":{"type":"object","description":"A flunder."},"io.k8s.api.core.v1.Pod":{"type":"object","description":"stolen"}}}`
)

// newWardle starts a cluster with an aggregated API server of group wardle.example.com, and waits until that is served.
func newWardle(t testing.TB, opts ...apitest.Option) (*cluster, *backend) {
	t.Helper()
	c := newCluster(t, opts...)
	b := c.newBackend("192.0.2.1")
	c.service("wardle", "192.0.2.1")
	c.create(services, c.apiService(group, "v1", "wardle"))
	c.awaitServed("v1." + group)
	return c, b
}

// errorsWith reports whether an error is of a kind or says something.
func errorsWith(err error, kind error, text string) bool {
	return err != nil && (kind != nil && errors.Is(err, kind) || text != "" && strings.Contains(err.Error(), text))
}
