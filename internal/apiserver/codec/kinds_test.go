package codec

import (
	"testing"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// TestOtherKinds checks what a client is told that sends an object of another kind; the messages were recorded from upstream.
func TestOtherKinds(t *testing.T) {
	definition := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	service := apiregistrationv1.SchemeGroupVersion.WithKind("APIService")
	migration := storagemigrationv1.SchemeGroupVersion.WithKind("StorageVersionMigration")
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	objects := map[schema.GroupVersionKind]func() runtime.Object{
		definition: func() runtime.Object { return &apiextensionsv1.CustomResourceDefinition{} },
		service:    func() runtime.Object { return &apiregistrationv1.APIService{} },
		migration:  func() runtime.Object { return &storagemigrationv1.StorageVersionMigration{} },
		pod:        func() runtime.Object { return &runtime.Unknown{} },
	}
	for _, test := range []struct {
		expect           schema.GroupVersionKind
		apiVersion, kind string
		want             string
	}{
		{definition, "v1", "Pod", `Pod in version "v1" cannot be handled as a CustomResourceDefinition: no kind "Pod" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"`},
		{definition, "apiextensions.k8s.io/v1beta1", "CustomResourceDefinition", `the API version in the data (apiextensions.k8s.io/v1beta1) does not match the expected API version (apiextensions.k8s.io/v1)`},
		{definition, "apiextensions.k8s.io/v1", "CustomResourceDefinitionList", `CustomResourceDefinitionList in version "v1" cannot be handled as a CustomResourceDefinition: converting (v1.CustomResourceDefinitionList) to (apiextensions.CustomResourceDefinition): unknown conversion`},
		{definition, "apiextensions.k8s.io/v1", "ConversionReview", `ConversionReview in version "v1" cannot be handled as a CustomResourceDefinition: converting (v1.ConversionReview) to (apiextensions.CustomResourceDefinition): unknown conversion`},
		{definition, "apiextensions.k8s.io/v1", "DeleteOptions", `DeleteOptions in version "v1" cannot be handled as a CustomResourceDefinition: converting (v1.DeleteOptions) to (apiextensions.CustomResourceDefinition): unknown conversion`},
		{definition, "v1", "Status", `Status in version "v1" cannot be handled as a CustomResourceDefinition: converting (v1.Status) to (apiextensions.CustomResourceDefinition): unknown conversion`},
		{definition, "storagemigration.k8s.io/v1beta1", "StorageVersionMigration", `StorageVersionMigration in version "v1beta1" cannot be handled as a CustomResourceDefinition: no kind "StorageVersionMigration" is registered for version "storagemigration.k8s.io/v1beta1" in scheme "pkg/runtime/scheme.go:111"`},
		{service, "apiregistration.k8s.io/v1beta1", "APIService", `the API version in the data (apiregistration.k8s.io/v1beta1) does not match the expected API version (apiregistration.k8s.io/v1)`},
		{service, "apiextensions.k8s.io/v1", "DeleteOptions", `DeleteOptions in version "v1" cannot be handled as a APIService: no kind "DeleteOptions" is registered for version "apiextensions.k8s.io/v1" in scheme "pkg/runtime/scheme.go:111"`},
		{service, "v1", "Status", `Status in version "v1" cannot be handled as a APIService: converting (v1.Status) to (apiregistration.APIService): unknown conversion`},
		{migration, "v1", "Pod", `Pod in version "v1" cannot be handled as a StorageVersionMigration: converting (v1.Pod) to (storagemigration.StorageVersionMigration): unknown conversion`},
		{migration, "storagemigration.k8s.io/v1beta1", "StorageVersionMigration", `the API version in the data (storagemigration.k8s.io/v1beta1) does not match the expected API version (storagemigration.k8s.io/v1)`},
		{pod, "apiextensions.k8s.io/v1", "CustomResourceDefinition", `CustomResourceDefinition in version "v1" cannot be handled as a Pod: no kind "CustomResourceDefinition" is registered for version "apiextensions.k8s.io/v1" in scheme "pkg/runtime/scheme.go:111"`},
	} {
		body := []byte(`{"apiVersion":"` + test.apiVersion + `","kind":"` + test.kind + `"}`)
		_, err := Decode(body, JSON, test.expect, objects[test.expect](), Ignore)
		if err == nil || err.Error() != test.want {
			t.Errorf("%s %s: got %v, want %s", test.apiVersion, test.kind, err, test.want)
		}
	}
}
