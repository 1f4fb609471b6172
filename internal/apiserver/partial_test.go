package apiserver_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Metadata alone is that of the objects, in each encoding, whether it is sent at once or in pieces.
func TestPartials(t *testing.T) {
	s := start(t)
	const as = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	for i := range 150 {
		name := fmt.Sprintf("c-%03d", i)
		s.send("POST", inNamespace("configmaps"), fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"half":"%d"},"annotations":{"note":"<ä>\n"}},"data":{"k":"v"}}`, name, i%2),
			"Content-Type", "application/json").ok()
	}
	for _, query := range []string{"", "?labelSelector=half=1", "?limit=3", "?labelSelector=half=none"} {
		full := into[corev1.ConfigMapList](s.send("GET", inNamespace("configmaps")+query, nil).ok())
		check := func(got *metav1.PartialObjectMetadataList, kinds bool) {
			t.Helper()
			if got.ResourceVersion == "" || got.Continue != full.Continue || len(got.Items) != len(full.Items) {
				t.Fatalf("%s: %+v, %d items, want %d", query, got.ListMeta, len(got.Items), len(full.Items))
			}
			for i, item := range got.Items {
				if !apiequality.Semantic.DeepEqual(item.ObjectMeta, full.Items[i].ObjectMeta) {
					t.Fatalf("%s: item %d is\n%+v, want\n%+v", query, i, item.ObjectMeta, full.Items[i].ObjectMeta)
				}
				if want := (metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}); kinds && item.TypeMeta != want {
					t.Fatalf("%s: item %d is a %v", query, i, item.TypeMeta)
				}
			}
		}
		for _, accept := range []string{"application/json", "application/yaml", "application/json;pretty=1"} {
			a := s.send("GET", inNamespace("configmaps")+query, nil, "Accept", accept+as).ok()
			if accept == "application/yaml" {
				var err error
				if a.Body, err = yaml.YAMLToJSON(a.Body); err != nil {
					t.Fatal(err)
				}
			}
			var compact bytes.Buffer
			if err := json.Compact(&compact, a.Body); err != nil {
				t.Fatal(err)
			}
			a.Body = compact.Bytes()
			check(into[metav1.PartialObjectMetadataList](a), true)
		}
		var envelope runtime.Unknown
		var list metav1.PartialObjectMetadataList
		body := s.send("GET", inNamespace("configmaps")+query, nil, "Accept", "application/vnd.kubernetes.protobuf"+as).ok().Body
		if err := envelope.Unmarshal(body[4:]); err != nil {
			t.Fatal(err)
		}
		if err := list.Unmarshal(envelope.Raw); err != nil {
			t.Fatal(err)
		}
		if envelope.Kind != "PartialObjectMetadataList" {
			t.Errorf("protobuf has a %s", envelope.Kind)
		}
		check(&list, false)
	}
}
