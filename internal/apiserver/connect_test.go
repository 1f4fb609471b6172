package apiserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"skiff/internal/apiserver/request"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/subresources"
	"skiff/internal/apiserver/verbs"
)

// node creates a node with an address and the port of its kubelet.
func (s *testServer) node(name, address, port string) {
	s.t.Helper()
	s.must("POST", "/api/v1/nodes", `{"metadata":{"name":"`+name+`"}}`)
	s.must("PATCH", "/api/v1/nodes/"+name+"/status",
		`{"status":{"addresses":[{"type":"Hostname","address":"`+name+`"},{"type":"InternalIP","address":"`+address+`"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":`+port+`}}}}`)
}

// closedPort is a port nothing listens on.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func TestConnectRefusals(t *testing.T) {
	s := newTestServer(t)
	port := closedPort(t)
	s.node("up", "127.0.0.1", port)
	s.must("POST", "/api/v1/nodes", `{"metadata":{"name":"bare"}}`)
	s.must("POST", testPods, `{"metadata":{"name":"two"},"spec":{"containers":[{"name":"a","image":"i"},{"name":"b","image":"i"}],"initContainers":[{"name":"in","image":"i"}]}}`)
	s.pod("unbound", "x", "")
	s.pod("lost", "x", `,"nodeName":"gone"`)
	s.pod("mute", "x", `,"nodeName":"bare"`)
	s.pod("bound", "x", `,"nodeName":"up"`)
	s.must("POST", "/api/v1/namespaces/test/services", `{"metadata":{"name":"web"},"spec":{"ports":[{"port":80}]}}`)

	// Codes and texts are those of kube-apiserver v1.37.1.
	for _, c := range []struct {
		method, path string
		code         int
		message      string
	}{
		{"GET", "pods/none/log", 404, `pods "none" not found`},
		{"POST", "pods/none/exec", 404, `pods "none" not found`},
		{"GET", "pods/two/log", 400, "a container name must be specified for pod two, choose one of: [in a b]"},
		{"POST", "pods/two/exec", 400, "a container name must be specified for pod two, choose one of: [in a b]"},
		{"POST", "pods/two/attach", 400, "a container name must be specified for pod two, choose one of: [in a b]"},
		{"GET", "pods/two/log?container=zz", 400, "container zz is not valid for pod two"},
		{"POST", "pods/two/exec?container=zz", 400, "container zz is not valid for pod two"},
		{"POST", "pods/two/exec?container=a", 400, "pod two does not have a host assigned"},
		{"POST", "pods/unbound/attach", 400, "pod unbound does not have a host assigned"},
		{"POST", "pods/unbound/portforward", 400, "pod unbound does not have a host assigned"},
		{"GET", "pods/lost/log", 404, `pods "gone" not found`},
		{"GET", "pods/mute/log", 500, "no preferred addresses found; known addresses: []"},
		{"POST", "pods/mute/exec", 500, "no preferred addresses found; known addresses: []"},
		{"GET", "pods/bound/log?follow=1", 500, fmt.Sprintf(`Get "https://127.0.0.1:%s/containerLogs/test/bound/c?follow=true": dial tcp 127.0.0.1:%[1]s: connect: connection refused`, port)},
		{"POST", "pods/bound/exec", 400, "Upgrade request required"},
		{"GET", "pods/bound/portforward", 400, "Upgrade request required"},
		{"PUT", "pods/bound/exec", 405, response.ErrMethodNotAllowed.ErrStatus.Message},
		{"POST", "pods/bound/log", 405, response.ErrMethodNotAllowed.ErrStatus.Message},
		{"GET", "pods/bound/log/more", 404, response.ErrNotFound.ErrStatus.Message},
		{"GET", "pods/bound/log?tailLines=x", 400, `strconv.ParseInt: parsing "x": invalid syntax`},
		{"GET", "pods/bound/log?tailLines=-1", 422, `PodLogOptions "bound" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0`},
		{"GET", "pods/bound/log?sinceSeconds=0", 422, `PodLogOptions "bound" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0`},
		{"GET", "pods/bound/log?limitBytes=0", 422, `PodLogOptions "bound" is invalid: limitBytes: Invalid value: 0: must be greater than 0`},
		{"GET", "pods/bound/log?stream=x", 422, `PodLogOptions "bound" is invalid: stream: Forbidden: may not be specified`},
		{"GET", "pods/bound/log?sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z", 422, "PodLogOptions \"bound\" is invalid: []: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"},
		{"GET", "pods/none/proxy/", 404, `pods "none" not found`},
		{"GET", "pods/bound/proxy/", 400, "address not allowed"},
		{"GET", "pods/a:b:c:d/proxy/", 400, `invalid pod request "a:b:c:d"`},
		{"GET", "services/none/proxy/", 503, `no endpoints available for service "none"`},
		{"GET", "services/none:80/proxy/", 404, `services "none" not found`},
		{"GET", "services/web:80/proxy/", 503, `no endpoints available for service "web"`},
		{"GET", "services/web:81/proxy/", 503, `no service port 81 found for service "web"`},
		{"GET", "services/a:b:c:d/proxy/", 400, `invalid service request "a:b:c:d"`},
	} {
		s.expect(c.code, c.message, c.method, "/api/v1/namespaces/test/"+c.path, "")
	}
	s.expect(404, `nodes "none" not found`, "GET", "/api/v1/nodes/none/proxy/", "")
	s.expect(400, "address not allowed", "GET", "/api/v1/nodes/up/proxy/pods", "")
	s.expect(500, "no preferred addresses found; known addresses: []", "GET", "/api/v1/nodes/bare/proxy/pods", "")
	if w := s.do("GET", testPods+"/unbound/log", ""); w.Code != http.StatusNoContent || w.Body.Len() != 0 {
		t.Errorf("the log of a pod without a node: %d %s", w.Code, w.Body)
	}
	w := s.do("POST", testPods+"/bound/exec?command=ls", "", "Connection", "Upgrade", "Upgrade", "SPDY/3.1")
	if want := fmt.Sprintf("error dialing backend: dial tcp 127.0.0.1:%s: connect: connection refused", port); w.Code != 500 || !strings.Contains(w.Body.String(), want) {
		t.Errorf("exec on a node that is down: %d %s", w.Code, w.Body)
	}
}

// fakeKubelet answers logs, and echoes what comes over upgraded connections.
func fakeKubelet(t *testing.T) (host, port string, asked chan string) {
	asked = make(chan string, 10)
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.String()
		switch {
		case strings.HasPrefix(r.URL.Path, "/containerLogs/test/refused"):
			http.Error(w, "not here", http.StatusNotFound)
		case strings.HasPrefix(r.URL.Path, "/containerLogs/test/broken"):
			http.Error(w, "disk gone", http.StatusInternalServerError)
		case strings.HasPrefix(r.URL.Path, "/containerLogs/"):
			_, _ = io.WriteString(w, "hello\n")
		case r.Header.Get("Upgrade") != "":
			conn, stream, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(conn, stream)
		}
	}))
	t.Cleanup(kubelet.Close)
	at, err := url.Parse(kubelet.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at.Hostname(), at.Port(), asked
}

func TestLogs(t *testing.T) {
	s := newTestServer(t)
	host, port, asked := fakeKubelet(t)
	s.node("n", host, port)
	for _, name := range []string{"p", "refused", "broken"} {
		s.pod(name, "x", `,"nodeName":"n"`)
	}
	w := s.do("GET", testPods+"/p/log?follow=true&tailLines=5&timestamps=1&sinceTime=2020-01-01T00:00:00Z&limitBytes=9&previous=false", "")
	if w.Code != 200 || w.Body.String() != "hello\n" || w.Header().Get("Content-Type") != "text/plain" {
		t.Errorf("%d %v %q", w.Code, w.Header(), w.Body)
	}
	if got, want := <-asked, "GET /containerLogs/test/p/c?follow=true&limitBytes=9&sinceTime=2020-01-01T00%3A00%3A00Z&tailLines=5&timestamps=true"; got != want {
		t.Errorf("the kubelet was asked %s, want %s", got, want)
	}
	s.expect(404, "the server could not find the requested resource ( pods/log refused)", "GET", testPods+"/refused/log", "")
	s.expect(500, "Internal error occurred: disk gone\n", "GET", testPods+"/broken/log", "")
}

func TestExecJoinsConnections(t *testing.T) {
	s := newTestServer(t)
	host, port, asked := fakeKubelet(t)
	s.node("n", host, port)
	s.pod("p", "x", `,"nodeName":"n"`)
	front := httptest.NewServer(s)
	defer front.Close()
	for path, want := range map[string]string{
		"exec?command=ls&command=-l&tty=true&stdin=1&stderr=0": "POST /exec/test/p/c?command=ls&command=-l&input=1&tty=1",
		"attach?container=c&stdout=true":                       "POST /attach/test/p/c?output=1",
		"portforward?ports=80&ports=81":                        "POST /portForward/test/p?port=80%2C81",
	} {
		conn, err := net.Dial("tcp", front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Fprintf(conn, "POST %s/p/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\nContent-Length: 0\r\n\r\n", testPods, path, testToken)
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(conn)
		answer, err := http.ReadResponse(in, nil)
		if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%s: %v %v", path, answer, err)
		}
		if got := <-asked; got != want {
			t.Errorf("the kubelet was asked %s, want %s", got, want)
		}
		if _, err := io.WriteString(conn, "hello\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := in.ReadString('\n'); line != "hello\n" {
			t.Errorf("got %q %v", line, err)
		}
		_ = conn.Close()
	}
}

// A pod's address is a real one, so the way there is tested up to the transport.
func TestServiceProxyFindsPods(t *testing.T) {
	s := newTestServer(t)
	s.pod("p", "x", `,"nodeName":"n"`)
	s.must("PATCH", testPods+"/p/status", `{"status":{"podIP":"10.42.0.9","podIPs":[{"ip":"10.42.0.9"}]}}`)
	s.must("POST", "/api/v1/namespaces/test/services", `{"metadata":{"name":"web"},"spec":{"ports":[{"name":"http","port":80}]}}`)
	slice := func(name, address, pod, ready string) {
		s.must("POST", "/apis/discovery.k8s.io/v1/namespaces/test/endpointslices", `{"metadata":{"name":"`+name+`","labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4","ports":[{"name":"http","port":8080,"protocol":"TCP"}],
			"endpoints":[{"addresses":["`+address+`"],"conditions":{"ready":`+ready+`},"targetRef":{"kind":"Pod","namespace":"test","name":"`+pod+`"}}]}`)
	}
	slice("no-pod", "10.42.0.1", "other", "true")
	slice("not-its-address", "10.42.0.2", "p", "true")
	slice("not-ready", "10.42.0.9", "p", "false")
	c := subresources.NewConnector(subresources.Options{API: s.api, Dial: s.opts.Dial, KubeletAddresses: s.opts.KubeletAddresses, AddressType: discoveryv1.AddressTypeIPv4})
	locate := func(name string) (*url.URL, error) {
		r := httptest.NewRequest("GET", "/api/v1/namespaces/test/services/"+name+"/proxy/", nil)
		location, _, err := c.ServiceLocation(&verbs.Request{Responder: response.Responder{Request: r, Ctx: r.Context(), Route: request.ParseRoute(r)}, API: s.api})
		return location, err
	}
	if got, err := locate("web:80"); err == nil {
		t.Errorf("got %v, want no endpoint", got)
	}
	slice("good", "10.42.0.9", "p", "true")
	if err := s.feed.Fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"web:80": "http://10.42.0.9:8080", "web:http": "http://10.42.0.9:8080", "https:web:http": "https://10.42.0.9:8080"} {
		got, err := locate(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.Scheme == "" {
			got.Scheme = "http"
		}
		if got.String() != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
