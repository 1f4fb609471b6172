package apiserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/store/memory"
)

// TestResourcesOf finds the resources of kinds that are built in, and of those of definitions.
func TestResourcesOf(t *testing.T) {
	s := newTestServer(t)
	s.must("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
		"names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}`)
	for deadline := time.Now().Add(20 * time.Second); s.do("GET", "/apis/example.com/v1/things", "").Code != 200; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the definition is not served")
		}
	}
	for kind, want := range map[schema.GroupVersionKind]string{
		{Group: "apps", Version: "v1", Kind: "Deployment"}:   "apps/v1, Resource=deployments true",
		{Group: "apps", Version: "v1", Kind: "deployment"}:   "apps/v1, Resource=deployments true",
		{Version: "v1", Kind: "Node"}:                        "/v1, Resource=nodes false",
		{Group: "example.com", Version: "v1", Kind: "Thing"}: "example.com/v1, Resource=things false",
		{Group: "example.com", Version: "v2", Kind: "Thing"}: "",
		{Version: "v1", Kind: "Nothing"}:                     "",
	} {
		var found []string
		for _, r := range s.resourcesOf(kind) {
			found = append(found, r.GroupVersionResource.String()+map[bool]string{true: " true", false: " false"}[r.Namespaced])
		}
		if got := strings.Join(found, ", "); got != want {
			t.Errorf("%s: found %s, want %s", kind, got, want)
		}
	}
}

// TestBadConfigurationRefusesTheStart: a server does not start with a plugin that is not as its operator wants it.
func TestBadConfigurationRefusesTheStart(t *testing.T) {
	m := memory.New(memory.Options{})
	defer m.Close()
	file := filepath.Join(t.TempDir(), "admission.yaml")
	const config = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: PodNodeSelector, configuration: {podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: nonsense}}}]"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := New(Options{Store: m, AdvertiseAddress: "192.0.2.1", Port: 6443, AdmissionConfigFile: file})
	if err == nil || !strings.Contains(err.Error(), file+`: plugin "PodNodeSelector": plugins[0].configuration: podNodeSelectorPluginConfig.clusterDefaultNodeSelector: Invalid value: "nonsense"`) {
		t.Errorf("the error is %v", err)
	}
}
