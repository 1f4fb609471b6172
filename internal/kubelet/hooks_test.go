package kubelet

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
)

// heard records requests.
type heard struct {
	mu   sync.Mutex
	list []*http.Request
}

func (h *heard) ServeHTTP(w http.ResponseWriter, rq *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, rq)
	w.WriteHeader(http.StatusTeapot)
}

// An httpGet hook sends the request of its spec, and any response is a success. A server without TLS gets the request over HTTP, without its Authorization header.
func TestHTTPHooks(t *testing.T) {
	h := &heard{}
	plain := httptest.NewServer(h)
	defer plain.Close()
	secure := httptest.NewTLSServer(h)
	defer secure.Close()
	at := func(s *httptest.Server) (host string, port int) {
		host, number, err := net.SplitHostPort(s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if port, err = strconv.Atoi(number); err != nil {
			t.Fatal(err)
		}
		return host, port
	}
	host, plainPort := at(plain)
	_, securePort := at(secure)
	events := record.NewFakeRecorder(10)
	k, pod := &Kubelet{recorder: events}, &corev1.Pod{}
	pod.Name, pod.Namespace = "web", "default"
	c := &corev1.Container{Name: "a", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: int32(plainPort)}}}
	secret := []corev1.HTTPHeader{{Name: "Authorization", Value: "secret"}, {Name: "X-Asked", Value: "yes"}}
	for name, test := range map[string]struct {
		get   corev1.HTTPGetAction
		ips   []string
		want  string // method, path, host, user agent, authorization, X-Asked
		fails string
		event bool
	}{
		"by name":        {corev1.HTTPGetAction{Port: intstr.FromString("http"), Path: "began?x=1"}, []string{host}, "GET /began?x=1 " + plain.Listener.Addr().String() + " kube-lifecycle/1.37", "", false},
		"headers":        {corev1.HTTPGetAction{Port: intstr.FromInt(plainPort), HTTPHeaders: append(secret, corev1.HTTPHeader{Name: "host", Value: "me"}, corev1.HTTPHeader{Name: "User-Agent", Value: "mine"})}, []string{host}, "GET / me mine secret yes", "", false},
		"another host":   {corev1.HTTPGetAction{Port: intstr.FromInt(plainPort), Host: host, Path: "/"}, nil, "GET / " + plain.Listener.Addr().String() + " kube-lifecycle/1.37", "", false},
		"TLS":            {corev1.HTTPGetAction{Port: intstr.FromInt(securePort), Scheme: "HTTPS", HTTPHeaders: secret}, []string{host}, "GET / " + secure.Listener.Addr().String() + " kube-lifecycle/1.37 secret yes", "", false},
		"no TLS":         {corev1.HTTPGetAction{Port: intstr.FromInt(plainPort), Scheme: "HTTPS", HTTPHeaders: secret}, []string{host}, "GET / " + plain.Listener.Addr().String() + " kube-lifecycle/1.37 yes", "", true},
		"no address":     {corev1.HTTPGetAction{Port: intstr.FromInt(plainPort)}, nil, "", "the pod has no address", false},
		"unknown port":   {corev1.HTTPGetAction{Port: intstr.FromString("https")}, []string{host}, "", "couldn't find port: https", false},
		"no port":        {corev1.HTTPGetAction{Port: intstr.FromInt(70000)}, []string{host}, "", "couldn't find port: 70000", false},
		"nobody listens": {corev1.HTTPGetAction{Port: intstr.FromInt(1), Path: "/bye"}, []string{"127.0.0.1"}, "", "connection refused", false},
	} {
		h.list = nil
		message, err := k.runHook(t.Context(), pod, c, "id", test.ips, &corev1.LifecycleHandler{HTTPGet: &test.get})
		if test.fails != "" {
			if err == nil || !strings.Contains(err.Error(), test.fails) || !strings.HasPrefix(message, `HTTP lifecycle hook (`+test.get.Path+`) for Container "a" in Pod "web_default`) {
				t.Errorf("%s: %v, %q", name, err, message)
			}
			continue
		}
		if err != nil || len(h.list) != 1 {
			t.Errorf("%s: %v, %d requests", name, err, len(h.list))
			continue
		}
		rq := h.list[0]
		got := strings.Join(strings.Fields(strings.Join([]string{rq.Method, rq.URL.RequestURI(), rq.Host, rq.UserAgent(), rq.Header.Get("Authorization"), rq.Header.Get("X-Asked")}, " ")), " ")
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if test.event != (len(events.Events) == 1) {
			t.Errorf("%s: %d events", name, len(events.Events))
		}
		for len(events.Events) > 0 {
			<-events.Events
		}
	}
}
