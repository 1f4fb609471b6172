package client_test

import (
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/webhook/client"
	"skiff/internal/apiserver/objects/objectstest"
)

// server is an HTTPS server, whose certificate is for example.com and 127.0.0.1.
func server(t *testing.T, handle http.HandlerFunc) (s *httptest.Server, ca []byte) {
	s = httptest.NewTLSServer(handle)
	t.Cleanup(s.Close)
	return s, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

var body = [2][]byte{[]byte("first "), []byte("second")}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestPost(t *testing.T) {
	s, ca := server(t, func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, strings.Join([]string{r.Method, r.URL.String(), r.Proto, string(sent), r.Header.Get("Content-Type"), r.UserAgent()}, "|"))
	})
	p := client.NewPool(nil, nil, nil)
	e, path, err := p.Acquire(&admissionregistrationv1.WebhookClientConfig{URL: ptr.To(s.URL + "/a//b/"), CABundle: ca})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release(e)
	answer, err := e.Post(within(t, 2500*time.Millisecond), path, body)
	if want := "POST|/a/b?timeout=3s|HTTP/1.1|first second|application/json|kube-apiserver-admission"; err != nil || string(answer) != want {
		t.Errorf("%v: the server got %s, want %s", err, answer, want)
	}
}

// TestService: the address of a service is looked up for each call, again if nobody listens there, and the certificate must be for the name of the service.
func TestService(t *testing.T) {
	s, ca := server(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) })
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	calls := 0
	resolve := func(_ context.Context, namespace, name string, port int32) (string, error) {
		if calls++; namespace != "ns" || name != "svc" || port != 8443 {
			t.Errorf("asked for %s/%s:%d", namespace, name, port)
		}
		if calls == 1 {
			return gone.Addr().String(), nil
		}
		return s.Listener.Addr().String(), nil
	}
	p := client.NewPool(resolve, nil, nil)
	e, path, err := p.Acquire(&admissionregistrationv1.WebhookClientConfig{CABundle: ca, Service: &admissionregistrationv1.ServiceReference{Namespace: "ns", Name: "svc", Port: ptr.To[int32](8443)}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release(e)
	_, err = e.Post(within(t, 10*time.Second), path, body)
	want := `Post "https://svc.ns.svc:8443/?timeout=10s": tls: failed to verify certificate: x509: certificate is valid for example.com, *.example.com, not svc.ns.svc`
	if err == nil || err.Error() != want || calls != 2 {
		t.Errorf("after %d lookups: %v\nwant %s", calls, err, want)
	}
}

// TestClosedConnections: a server that closes its connections between calls does not make calls fail, and large bodies are sent again in full.
func TestClosedConnections(t *testing.T) {
	s, ca := server(t, func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, strconv.Itoa(len(sent)))
	})
	p := client.NewPool(nil, nil, nil)
	e, _, err := p.Acquire(&admissionregistrationv1.WebhookClientConfig{URL: &s.URL, CABundle: ca})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release(e)
	large := [2][]byte{[]byte("x"), make([]byte, 2<<20)}
	for range 50 {
		if answer, err := e.Post(within(t, 20*time.Second), "/", large); err != nil || string(answer) != strconv.Itoa(1+len(large[1])) {
			t.Fatalf("%q, %v", answer, err)
		}
		s.CloseClientConnections()
	}
}

// TestRetryAfter: a server may ask for a request to be sent again; the deadline bounds how often.
func TestRetryAfter(t *testing.T) {
	var calls atomic.Int32
	s, ca := server(t, func(w http.ResponseWriter, r *http.Request) {
		if sent, _ := io.ReadAll(r.Body); string(sent) != "first second" {
			t.Errorf("sent %q", sent)
		}
		switch n := calls.Add(1); {
		case r.URL.Path == "/always":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		case n < 3:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			_, _ = io.WriteString(w, "ok")
		}
	})
	p := client.NewPool(nil, nil, nil)
	e, _, err := p.Acquire(&admissionregistrationv1.WebhookClientConfig{URL: &s.URL, CABundle: ca})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release(e)
	if answer, err := e.Post(within(t, 5*time.Second), "/", body); string(answer) != "ok" || calls.Load() != 3 {
		t.Errorf("after %d calls: %q, %v", calls.Load(), answer, err)
	}
	start := time.Now()
	_, err = e.Post(within(t, 300*time.Millisecond), "/always", body)
	if err == nil || time.Since(start) > 2*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}

func TestBadConfigurations(t *testing.T) {
	p := client.NewPool(nil, nil, nil)
	for _, c := range []struct {
		config admissionregistrationv1.WebhookClientConfig
		want   string
	}{
		{admissionregistrationv1.WebhookClientConfig{}, "webhook configuration must have either service or URL"},
		{admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://[")}, `Unparsable URL: parse "https://[": missing ']' in host`},
	} {
		_, _, err := p.Acquire(&c.config)
		admissiontest.Expect(t, err, c.want)
	}
	e, path, err := p.Acquire(&admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1"), CABundle: []byte("nonsense")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Post(within(t, time.Second), path, body)
	admissiontest.Expect(t, err, "unable to load root certificates: unable to parse bytes as PEM block")
	p.Release(e)
	p.Close()
}

func TestResolver(t *testing.T) {
	s := objectstest.New()
	services, slices := corev1.Resource("services"), discoveryv1.Resource("endpointslices")
	for _, text := range []string{
		`{metadata: {namespace: ns, name: svc}, spec: {ports: [{name: web, port: 443}, {name: other, port: 80}]}}`,
		`{metadata: {namespace: ns, name: empty}, spec: {ports: [{port: 443}]}}`,
		`{metadata: {namespace: ns, name: external}, spec: {type: ExternalName, externalName: host.example.com}}`,
	} {
		s.Put(services, admissiontest.Parse(t, &corev1.Service{}, text))
	}
	for _, text := range []string{
		`{metadata: {namespace: ns, name: a, labels: {kubernetes.io/service-name: svc}}, ports: [{name: web, port: 8443}, {name: other, port: 8080}],
		  endpoints: [{addresses: [192.0.2.1], conditions: {ready: false}}, {addresses: [192.0.2.2]}]}`,
		`{metadata: {namespace: ns, name: b, labels: {kubernetes.io/service-name: svc}}, ports: [{name: web, port: 9443}], endpoints: [{addresses: ["2001:db8::1"], conditions: {ready: true}}]}`,
		`{metadata: {namespace: other, name: c, labels: {kubernetes.io/service-name: svc}}, ports: [{name: web, port: 1}], endpoints: [{addresses: [192.0.2.3]}]}`,
		`{metadata: {namespace: ns, name: d, labels: {kubernetes.io/service-name: empty}}, ports: [{name: "", port: 1}], endpoints: [{addresses: [192.0.2.4], conditions: {ready: false}}]}`,
	} {
		s.Put(slices, admissiontest.Parse(t, &discoveryv1.EndpointSlice{}, text))
	}
	r := client.NewResolver(s)
	found := map[string]bool{}
	for range 200 {
		host, err := r.Resolve(t.Context(), "ns", "svc", 443)
		if err != nil {
			t.Fatal(err)
		}
		found[host] = true
	}
	if len(found) != 2 || !found["192.0.2.2:8443"] || !found["[2001:db8::1]:9443"] {
		t.Errorf("found %v", found)
	}
	for _, c := range []struct {
		name string
		port int32
		want string
		err  string
	}{
		{"svc", 80, "192.0.2.2:8080", ""},
		{"svc", 81, "", `no service port 81 found for service "svc"`},
		{"empty", 443, "", `no endpoints available for service "empty"`},
		{"external", 444, "host.example.com:444", ""},
		{"nobody", 443, "", `service "nobody" not found`},
	} {
		host, err := r.Resolve(t.Context(), "ns", c.name, c.port)
		if admissiontest.Expect(t, err, c.err); host != c.want {
			t.Errorf("%s: %s, want %s", c.name, host, c.want)
		}
	}
}
