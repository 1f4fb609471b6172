package health

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/network/proxy/model"
)

// TestProxy: the proxy is healthy while it starts and while changes come into effect in time.
func TestProxy(t *testing.T) {
	var p Proxy
	p.SetFamilies(corev1.IPv4Protocol)
	ask := func(path string) (int, map[string]any) {
		t.Helper()
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		var body map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		return w.Code, body
	}
	expect := func(when string, health, live int) {
		t.Helper()
		if code, body := ask("/healthz"); code != health {
			t.Errorf("%s: healthz %d %v", when, code, body)
		}
		if code, body := ask("/livez"); code != live {
			t.Errorf("%s: livez %d %v", when, code, body)
		}
	}
	expect("without a node", 503, 200)
	p.SetNode(&corev1.Node{})
	p.Queued()
	expect("at the start", 200, 200)
	p.Updated(time.Now())
	p.Queued()
	expect("with a change", 200, 200)
	p.queued = time.Now().Add(-timeout - time.Second)
	expect("with a change that waits for too long", 503, 503)
	p.Updated(time.Now().Add(-time.Hour)) // a sync that did not include the change
	expect("with a change that was not in the last one", 503, 503)
	p.Updated(time.Now())
	expect("up to date", 200, 200)
	now := metav1.Now()
	p.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}})
	expect("on a node that is deleted", 503, 200)
	if _, body := ask("/healthz"); body["nodeEligible"] != false || body["healthy"] != true || body["status"].(map[string]any)["IPv4"] == nil {
		t.Errorf("%v", body)
	}
}

// TestServices: a port in use is reported, and listened on once it is free.
func TestServices(t *testing.T) {
	loopback := netip.MustParseAddr("127.0.0.1")
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(taken.Addr().(*net.TCPAddr).Port)
	name := types.NamespacedName{Namespace: "default", Name: "web"}
	failed := 0
	s := &Services{Healthy: func() bool { return true }, Addresses: []netip.Addr{loopback}, ListenFailed: func(types.NamespacedName, uint16, error) { failed++ }}
	t.Cleanup(s.Close)
	checks := map[types.NamespacedName]model.HealthCheck{name: {Port: port, IPv4: 3, Family: []model.Family{model.IPv4}}}
	s.Sync(checks)
	if failed != 1 {
		t.Errorf("%d failures", failed)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	s.Sync(checks)
	get := func() (int, string) {
		answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return 0, err.Error()
		}
		return answer.StatusCode, string(body)
	}
	want := "{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 3,\n\t\"serviceProxyHealthy\": true\n}\n"
	if code, body := get(); code != 200 || body != want {
		t.Errorf("%d %q", code, body)
	}
	s.Healthy = func() bool { return false }
	if code, _ := get(); code != 503 {
		t.Errorf("a proxy that is not well: %d", code)
	}
	s.Sync(nil)
	if code, _ := get(); code != 0 {
		t.Errorf("somebody still answers: %d", code)
	}
}
