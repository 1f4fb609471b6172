package cri

import (
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Operations have the names that dashboards know.
func TestOperation(t *testing.T) {
	for method, want := range map[string]string{
		"/runtime.v1.RuntimeService/RunPodSandbox": "run_podsandbox", "/runtime.v1.RuntimeService/PodSandboxStatus": "podsandbox_status",
		"/runtime.v1.RuntimeService/ListPodSandbox": "list_podsandbox", "/runtime.v1.RuntimeService/ListPodSandboxStats": "list_podsandbox_stats",
		"/runtime.v1.RuntimeService/CreateContainer": "create_container", "/runtime.v1.RuntimeService/UpdateContainerResources": "update_container",
		"/runtime.v1.RuntimeService/ExecSync": "exec_sync", "/runtime.v1.RuntimeService/Version": "version", "/runtime.v1.RuntimeService/ReopenContainerLog": "reopen_container_log",
		"/runtime.v1.ImageService/PullImage": "pull_image", "/runtime.v1.ImageService/ImageFsInfo": "image_fs_info", "/runtime.v1.RuntimeService/PortForward": "port_forward",
	} {
		if got := operation(method); got != want {
			t.Errorf("%s: %s, want %s", method, got, want)
		}
	}
}

// Calls are counted, with those that fail and with the time they took.
func TestCallsAreMeasured(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket)
	c, err := Connect(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		if _, err := c.ContainerStatus(t.Context(), "c"); !IsNotFound(err) {
			t.Fatal(err)
		}
	}
	if _, err := c.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			got[f.GetName()+" "+m.Label[0].GetValue()] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{"total container_status": 3, "errors_total container_status": 3, "duration_seconds container_status": 3, "total version": 1, "errors_total version": 0} {
		if got["kubelet_runtime_operations_"+name] != want {
			t.Errorf("%s: %v, want %v", name, got["kubelet_runtime_operations_"+name], want)
		}
	}
}
