package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/subresources"
	"skiff/internal/apiserver/verbs"
)

func TestComponentStatuses(t *testing.T) {
	scheduler := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }))
	defer scheduler.Close()
	manager := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) }))
	defer manager.Close()
	broken := false
	s := newTestServer(t, func(o *Options) {
		o.StoreHealthy = func(context.Context) error {
			if broken {
				return errors.New("no leader")
			}
			return nil
		}
	})
	s.api.Handlers[verbs.HandlerKey{Resource: corev1.Resource("componentstatuses")}] = subresources.ComponentStatuses(scheduler.URL, manager.URL, s.opts.StoreHealthy)
	const path = "/api/v1/componentstatuses"

	var list corev1.ComponentStatusList
	s.get(path, &list)
	want := map[string]corev1.ComponentCondition{
		"scheduler":          {Type: "Healthy", Status: "True", Message: "ok"},
		"controller-manager": {Type: "Healthy", Status: "False", Message: "HTTP probe failed with statuscode: 500"},
		"etcd-0":             {Type: "Healthy", Status: "True", Message: "ok"},
	}
	if len(list.Items) != len(want) {
		t.Errorf("got %v", list.Items)
	}
	for _, c := range list.Items {
		if len(c.Conditions) != 1 || c.Conditions[0] != want[c.Name] {
			t.Errorf("%s: got %v, want %v", c.Name, c.Conditions, want[c.Name])
		}
	}
	scheduler.Close()
	broken = true
	var one corev1.ComponentStatus
	s.get(path+"/scheduler", &one)
	if c := one.Conditions[0]; c.Status != "False" || !strings.Contains(c.Message, "connection refused") {
		t.Errorf("a scheduler that is gone: %v", c)
	}
	s.get(path+"/etcd-0", &one)
	if c := one.Conditions[0]; c.Status != "False" || c.Error != "no leader" {
		t.Errorf("a store without a leader: %v", c)
	}
	s.get(path+"?fieldSelector=metadata.name%3Detcd-0", &list)
	if len(list.Items) != 1 || list.Items[0].Name != "etcd-0" {
		t.Errorf("selected by name: %v", list.Items)
	}
	if got := s.must("GET", path+"?labelSelector=a%3Db", ""); !strings.Contains(got, `"items":[]`) {
		t.Errorf("selected by label: %s", got)
	}
	w := s.do("GET", path+"/etcd-0", "", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	var table metav1.Table
	if err := json.Unmarshal(w.Body.Bytes(), &table); err != nil || len(table.Rows) != 1 || table.Rows[0].Cells[1] != "Unhealthy" ||
		!strings.Contains(w.Body.String(), `"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"etcd-0"}}`) {
		t.Errorf("table: %s", w.Body)
	}
	s.expect(404, `componentstatus "none" not found`, "GET", path+"/none", "")
	s.expect(405, `watch is not supported on resources of kind "componentstatuses"`, "GET", path+"?watch=1", "")
	s.expect(405, response.ErrMethodNotAllowed.ErrStatus.Message, "POST", path, "{}")
}
