package probe

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func listens(t *testing.T, l net.Listener) (ip string, port int) {
	t.Helper()
	host, p, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if port, err = strconv.Atoi(p); err != nil {
		t.Fatal(err)
	}
	return host, port
}

// freePort returns one where nobody listens.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port := listens(t, l)
	return port
}

func TestHTTP(t *testing.T) {
	mux := http.NewServeMux()
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	mux.HandleFunc("/ok", status(200, "fine"))
	mux.HandleFunc("/399", status(399, "odd"))
	mux.HandleFunc("/bad", status(500, "a secret"))
	mux.HandleFunc("/long", status(200, strings.Repeat("x", 3*maxOutput)))
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.Handle("/here", http.RedirectHandler("/ok", http.StatusFound))
	mux.Handle("/away", http.RedirectHandler("http://elsewhere.example/", http.StatusFound))
	mux.Handle("/round", http.RedirectHandler("/round", http.StatusFound))
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %q %v %q", r.Host, r.UserAgent(), r.Header["Accept"], r.Header["X-A"], r.URL.RawQuery)
	})
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	defer plain.Close()
	defer secure.Close()
	ip, port := listens(t, plain.Listener)
	_, tlsPort := listens(t, secure.Listener)
	container := &corev1.Container{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}}
	number := intstr.FromInt(port)
	h := func(pairs ...string) (out []corev1.HTTPHeader) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, corev1.HTTPHeader{Name: pairs[i], Value: pairs[i+1]})
		}
		return out
	}
	for _, test := range []struct {
		action corev1.HTTPGetAction
		want   outcome
		output string // contained
	}{
		{corev1.HTTPGetAction{Path: "/ok", Port: number}, success, "fine"},
		{corev1.HTTPGetAction{Path: "/ok", Port: intstr.FromString("web")}, success, "fine"},
		{corev1.HTTPGetAction{Path: "/ok", Port: intstr.FromString("other")}, unknown, `port "other" not found`},
		{corev1.HTTPGetAction{Path: "/ok", Port: intstr.FromInt(0)}, unknown, "invalid port number: 0"},
		{corev1.HTTPGetAction{Path: "/ok", Port: intstr.FromInt(tlsPort), Scheme: corev1.URISchemeHTTPS}, success, "fine"},
		{corev1.HTTPGetAction{Path: "/399", Port: number}, warning, "Probe terminated redirects, Response body: odd"},
		{corev1.HTTPGetAction{Path: "/bad", Port: number}, failure, "HTTP probe failed with statuscode: 500"},
		{corev1.HTTPGetAction{Path: "/long", Port: number}, success, strings.Repeat("x", maxOutput)},
		{corev1.HTTPGetAction{Path: "/slow", Port: number}, failure, "Client.Timeout exceeded"},
		{corev1.HTTPGetAction{Path: "/here", Port: number}, success, "fine"},
		{corev1.HTTPGetAction{Path: "/away", Port: number}, warning, "Probe terminated redirects"},
		{corev1.HTTPGetAction{Path: "/round", Port: number}, failure, "stopped after 10 redirects"},
		{corev1.HTTPGetAction{Path: "/ok", Port: intstr.FromInt(freePort(t))}, failure, "connection refused"},
		{corev1.HTTPGetAction{Path: "/echo?a=b", Port: number}, success, fmt.Sprintf(`%s:%d kube-probe/1.37 ["*/*"] [] "a=b"`, ip, port)},
		{corev1.HTTPGetAction{Path: "/echo", Port: number, HTTPHeaders: h("Host", "web.example", "user-agent", "me", "Accept", "", "X-A", "1", "x-a", "2")}, success,
			`web.example me [] [1 2] ""`},
		{corev1.HTTPGetAction{Path: "/ok", Port: number, Host: "127.0.0.2"}, failure, "127.0.0.2"},
	} {
		got := probeHTTP(t.Context(), &test.action, container, ip, 200*time.Millisecond)
		output := got.output
		if got.err != nil {
			output = got.err.Error()
		}
		if got.outcome != test.want || !strings.Contains(output, test.output) || strings.Contains(output, "secret") || len(output) > maxOutput {
			t.Errorf("%+v: %s %q, want %s %q", test.action, got.outcome, output, test.want, test.output)
		}
	}
	if got := probeHTTP(t.Context(), &corev1.HTTPGetAction{Path: "/ok", Port: number}, container, "", time.Second); got.err == nil {
		t.Errorf("a pod without an address answers: %+v", got)
	}
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ip, port := listens(t, l)
	container := &corev1.Container{Ports: []corev1.ContainerPort{{Name: "db", ContainerPort: int32(port)}}}
	for _, p := range []intstr.IntOrString{intstr.FromInt(port), intstr.FromString("db")} {
		if got := probeTCP(t.Context(), &corev1.TCPSocketAction{Port: p}, container, ip, time.Second); got.outcome != success {
			t.Errorf("%v: %+v", p, got)
		}
	}
	if got := probeTCP(t.Context(), &corev1.TCPSocketAction{Port: intstr.FromInt(freePort(t))}, container, ip, time.Second); got.outcome != failure || !strings.Contains(got.output, "connection refused") {
		t.Errorf("nobody listens: %+v", got)
	}
	if got := probeTCP(t.Context(), &corev1.TCPSocketAction{Port: intstr.FromInt(port), Host: "127.0.0.3"}, container, ip, time.Second); got.outcome != failure {
		t.Errorf("another host: %+v", got)
	}
	if got := probeTCP(t.Context(), &corev1.TCPSocketAction{Port: intstr.FromString("none")}, container, ip, time.Second); got.err == nil {
		t.Errorf("an unknown port: %+v", got)
	}
}

func TestGRPC(t *testing.T) {
	serve := func(register func(*grpc.Server)) (string, int32) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		register(s)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Serve(l)
		}()
		t.Cleanup(func() {
			s.Stop()
			<-done
		})
		ip, port := listens(t, l)
		return ip, int32(port)
	}
	ip, port := serve(func(s *grpc.Server) {
		h := health.NewServer()
		h.SetServingStatus("sick", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		grpc_health_v1.RegisterHealthServer(s, h)
	})
	_, other := serve(func(*grpc.Server) {})
	// A listener that never speaks.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_, silentPort := listens(t, silent)
	const timeout = 300 * time.Millisecond
	nobody := int32(freePort(t))
	for _, test := range []struct {
		action corev1.GRPCAction
		want   outcome
		output string
	}{
		{corev1.GRPCAction{Port: port}, success, "service healthy"},
		{corev1.GRPCAction{Port: port, Service: ptr.To("sick")}, failure, `service unhealthy (responded with "NOT_SERVING")`},
		{corev1.GRPCAction{Port: port, Service: ptr.To("unheard")}, failure, "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"},
		{corev1.GRPCAction{Port: other}, failure, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service grpc.health.v1.Health"},
		{corev1.GRPCAction{Port: nobody}, failure, fmt.Sprintf(`timeout: failed to connect service "127.0.0.1:%d" within 300ms: context deadline exceeded`, nobody)},
		{corev1.GRPCAction{Port: int32(silentPort)}, failure, fmt.Sprintf(`timeout: failed to connect service "127.0.0.1:%d" within 300ms`, silentPort)},
	} {
		got := probeGRPC(t.Context(), &test.action, ip, timeout)
		if got.outcome != test.want || !strings.HasPrefix(got.output, test.output) {
			t.Errorf("%+v: %+v, want %s %q", test.action, got, test.want, test.output)
		}
	}
}

func TestExecPutsVariablesIn(t *testing.T) {
	var ran []string
	run := func(_ context.Context, id string, command []string, _ time.Duration) (int, []byte, error) {
		ran = append([]string{id}, command...)
		return 0, []byte(strings.Repeat("x", 2*maxOutput)), nil
	}
	container := &corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{}}}}
	got := probeExec(t.Context(), run, &corev1.ExecAction{Command: []string{"sh", "$(A)/$(C)/$$(A)/$(B)"}}, container, "id", time.Second)
	if got.outcome != success || len(got.output) != maxOutput {
		t.Errorf("%s, %d bytes", got.outcome, len(got.output))
	}
	if got, want := strings.Join(ran, " "), "id sh 1/$(C)/$(A)/"; got != want {
		t.Errorf("ran %q, want %q", got, want)
	}
}
