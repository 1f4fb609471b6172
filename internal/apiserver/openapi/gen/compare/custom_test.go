package compare

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	openapibuilder "k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"skiff/internal/apiserver/openapi/routes"
)

// TestCustomResources compares the operations of custom resources with upstream's.
func TestCustomResources(t *testing.T) {
	for _, scope := range []apiextensionsv1.ResourceScope{apiextensionsv1.NamespaceScoped, apiextensionsv1.ClusterScoped} {
		crd := definition(scope)
		services := []common.RouteContainer{routes.CustomGroupVersion(gv, customEndpoints(scope))}

		theirs3, err := builder.BuildOpenAPIV3(crd, "v1", builder.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ours3, err := builder3.BuildOpenAPISpecFromRoutes(services, &common.OpenAPIV3Config{
			GetDefinitions: anyDefinition, GetOperationIDAndTagsFromRoute: routes.OperationID,
			GetDefinitionName: sameName, CommonResponses: map[int]*spec3.Response{401: {ResponseProps: spec3.ResponseProps{Description: "Unauthorized"}}}})
		if err != nil {
			t.Fatal(err)
		}
		if len(theirs3.Paths.Paths) < 4 {
			t.Errorf("upstream has but %d paths", len(theirs3.Paths.Paths))
		}
		report(t, string(scope)+" v3", roundTrip(t, theirs3.Paths), roundTrip(t, ours3.Paths))

		theirs2, err := builder.BuildOpenAPIV2(crd, "v1", builder.Options{V2: true})
		if err != nil {
			t.Fatal(err)
		}
		ours2, err := openapibuilder.BuildOpenAPISpecFromRoutes(services, &common.Config{
			ProtocolList: []string{"https"}, GetDefinitions: anyDefinition, GetOperationIDAndTagsFromRoute: routes.OperationID,
			GetDefinitionName: sameName, CommonResponses: map[int]spec.Response{401: {ResponseProps: spec.ResponseProps{Description: "Unauthorized"}}}})
		if err != nil {
			t.Fatal(err)
		}
		report(t, string(scope)+" v2", roundTrip(t, theirs2.Paths), roundTrip(t, ours2.Paths))
		report(t, string(scope)+" v2 parameters", roundTrip(t, theirs2.Parameters), roundTrip(t, ours2.Parameters))
	}
}

var gv = schema.GroupVersion{Group: "example.com", Version: "v1"}

func definition(scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "apples.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "apples", Singular: "apple", Kind: "Apple", ListKind: "AppleList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &preserve}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.r", StatusReplicasPath: ".status.r"}}}},
		},
	}
}

func customEndpoints(scope apiextensionsv1.ResourceScope) []*routes.Endpoint {
	apple := routes.Endpoint{GroupVersion: gv, Resource: "apples", Namespaced: scope == apiextensionsv1.NamespaceScoped, Custom: true,
		Verbs:        []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
		ResourceKind: "Apple", Kind: gv.WithKind("Apple"), Model: "com.example.v1.Apple", ListModel: "com.example.v1.AppleList"}
	status, scale := apple, apple
	status.Subresource, scale.Subresource = "status", "scale"
	status.Verbs, scale.Verbs = []string{"get", "patch", "update"}, []string{"get", "patch", "update"}
	scale.Kind, scale.Model = schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, "io.k8s.api.autoscaling.v1.Scale"
	return []*routes.Endpoint{&apple, &status, &scale}
}

func sameName(name string) (string, spec.Extensions) { return name, nil }

// anyDefinition returns the definitions that operations refer to, by name only: only paths are compared here.
func anyDefinition(common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := map[string]common.OpenAPIDefinition{}
	for _, name := range []string{"com.example.v1.Apple", "com.example.v1.AppleList", "io.k8s.api.autoscaling.v1.Scale",
		"io.k8s.apimachinery.pkg.apis.meta.v1.Status", "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
		"io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"} {
		all[name] = common.OpenAPIDefinition{}
	}
	return all
}

func roundTrip(t *testing.T, value any) any {
	t.Helper()
	return decode(t, []byte(text(value)))
}
