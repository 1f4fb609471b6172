package slis_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"skiff/internal/slis"
)

// TestMetrics checks that the metrics have upstream's names, labels and types.
func TestMetrics(t *testing.T) {
	m := slis.New()
	m.Observe("etcd", "readyz", nil)
	m.Observe("etcd", "readyz", errors.New("no"))
	m.Observe("ping", "livez", nil)
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics/slis", nil))
	for _, want := range []string{
		"# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.", "# TYPE kubernetes_healthcheck gauge",
		`kubernetes_healthcheck{name="etcd",type="readyz"} 0`, `kubernetes_healthcheck{name="ping",type="livez"} 1`,
		"# HELP kubernetes_healthchecks_total [STABLE] This metric records the results of all healthcheck.", "# TYPE kubernetes_healthchecks_total counter",
		`kubernetes_healthchecks_total{name="etcd",status="error",type="readyz"} 1`, `kubernetes_healthchecks_total{name="etcd",status="success",type="readyz"} 1`,
		"# TYPE process_start_time_seconds gauge",
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("%s is not in\n%s", want, w.Body)
		}
	}
	if strings.Contains(w.Body.String(), "process_cpu") {
		t.Error("more of the process is shown than upstream does")
	}
}
