package openapi

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/util/proto/validation"
	explain "k8s.io/kubectl/pkg/explain/v2"
)

func client(t *testing.T) *discovery.DiscoveryClient {
	t.Helper()
	server := httptest.NewServer(newHandler())
	t.Cleanup(server.Close)
	c, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestClientGoReadsV3 reads every v3 document, and each kind in it, with client-go.
func TestClientGoReadsV3(t *testing.T) {
	root := openapi3.NewRoot(client(t).OpenAPIV3())
	versions, err := root.GroupVersions()
	if err != nil {
		t.Fatal(err)
	}
	if len(versions) < 20 {
		t.Errorf("only %v", versions)
	}
	for _, gv := range versions {
		spec, err := root.GVSpec(gv)
		if err != nil {
			t.Errorf("%s: %v", gv, err)
			continue
		}
		if len(spec.Components.Schemas) == 0 || len(spec.Paths.Paths) < 2 {
			t.Errorf("%s has %d schemas and %d paths", gv, len(spec.Components.Schemas), len(spec.Paths.Paths))
		}
	}
}

// TestClientGoReadsV2 reads v2 in protobuf, as client-go requests it; older kubectl, Helm and others validate with the models built from it.
func TestClientGoReadsV2(t *testing.T) {
	document, err := client(t).OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	models, err := proto.NewOpenAPIData(document)
	if err != nil {
		t.Fatal(err)
	}
	pod := models.LookupModel("io.k8s.api.core.v1.Pod")
	if pod == nil {
		t.Fatal("no Pod")
	}
	good := map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{"containers": []any{map[string]any{"name": "a"}}}}
	if errs := validation.ValidateModel(good, pod, "pod"); len(errs) > 0 {
		t.Error(errs)
	}
	bad := map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{"contayners": []any{}, "replicas": 1}}
	if errs := validation.ValidateModel(bad, pod, "pod"); len(errs) != 3 {
		t.Errorf("a bad pod has these errors: %v", errs)
	}
	gvk, _ := pod.GetExtensions()["x-kubernetes-group-version-kind"].([]any)
	if len(gvk) != 1 || gvk[0].(map[any]any)["kind"] != "Pod" {
		t.Errorf("a Pod is %v", gvk)
	}
}

// TestExplain does what kubectl explain does.
func TestExplain(t *testing.T) {
	c := client(t).OpenAPIV3()
	tests := []struct {
		resource schema.GroupVersionResource
		fields   string
		want     []string
	}{
		{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "spec", []string{
			"KIND:       Pod\nVERSION:    v1\n", "FIELD: spec <PodSpec>", "Specification of the desired behavior of the pod.",
			"  containers\t<[]Container> -required-\n", "  restartPolicy\t<string>\n  enum: Always, Never, OnFailure"}},
		{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "spec.containers.ports.protocol", []string{
			"FIELD: protocol <string>", `Defaults to "TCP"`}},
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "", []string{
			"GROUP:      apps\nKIND:       Deployment\nVERSION:    v1\n", "  spec\t<DeploymentSpec> -required-\n"}},
	}
	for _, test := range tests {
		var fields []string
		if test.fields != "" {
			fields = strings.Split(test.fields, ".")
		}
		var out bytes.Buffer
		if err := explain.PrintModelDescription(fields, &out, c, test.resource, false, 0, "plaintext"); err != nil {
			t.Errorf("%s.%s: %v", test.resource.Resource, test.fields, err)
		}
		for _, want := range test.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s.%s: %q is not in\n%s", test.resource.Resource, test.fields, want, out.String())
			}
		}
	}
}
