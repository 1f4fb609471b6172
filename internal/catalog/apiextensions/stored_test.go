package apiextensions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/diff"
	"sigs.k8s.io/yaml"
)

// TestStoredByUpstream decodes what upstream's codec stores of every definition of the stories, and compares with what upstream decodes.
func TestStoredByUpstream(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme)
	store, read := codecs.LegacyCodec(apiextensionsv1beta1.SchemeGroupVersion), codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)
	checked := 0
	for name, d := range storyDefinitions(t) {
		d.APIVersion, d.Kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
		value, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		internal, err := runtime.Decode(read, value)
		if err != nil {
			continue // not what anybody could have stored
		}
		stored, err := runtime.Encode(store, internal)
		if err != nil {
			t.Fatal(err)
		}
		want := upstreamV1(t, scheme, read, stored)
		got := &definition{}
		if err := unmarshalStored(stored, got); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, stored)
		}
		setDefaults(got)
		got.TypeMeta = want.TypeMeta
		if !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s: %s\n%s", name, diff.Diff(want, got), stored)
		}
		checked++
	}
	if checked < 100 {
		t.Errorf("only %d definitions of the stories could be stored", checked)
	}
}

// upstreamV1 returns what upstream decodes of a stored definition, in v1.
func upstreamV1(t *testing.T, scheme *runtime.Scheme, codec runtime.Decoder, stored []byte) *definition {
	t.Helper()
	internal, err := runtime.Decode(codec, stored)
	if err != nil {
		t.Fatal(err)
	}
	d := &definition{}
	if err := scheme.Convert(internal, d, nil); err != nil {
		t.Fatal(err)
	}
	scheme.Default(d)
	return d
}

// storyDefinitions returns the definitions of the recorded stories by file and number.
func storyDefinitions(t *testing.T) map[string]*definition {
	t.Helper()
	files, err := filepath.Glob("testdata/stories/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*definition{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, document := range bytes.Split(content, []byte("\n---\n")) {
			d := &definition{}
			if yaml.Unmarshal(document, d) == nil && len(d.Spec.Versions) > 0 {
				all[fmt.Sprintf("%s, document %d", file, i)] = d
			}
		}
	}
	return all
}

// TestStoredBeta decodes a definition as old servers stored it, with one version that is not in a list.
func TestStoredBeta(t *testing.T) {
	d := &definition{}
	err := unmarshalStored([]byte(`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1beta1","metadata":{"name":"a.b.c"},"spec":{"group":"b.c","version":"v1",
		"names":{"plural":"a","kind":"A"},"additionalPrinterColumns":[{"name":"X","type":"string","JSONPath":".x"}],
		"conversion":{"strategy":"Webhook","webhookClientConfig":{"url":"https://x"}}}}`), d)
	if err != nil {
		t.Fatal(err)
	}
	want := apiextensionsv1.CustomResourceDefinitionSpec{Group: "b.c", Scope: "Namespaced", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "a", Kind: "A"}, PreserveUnknownFields: true,
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "X", Type: "string", JSONPath: ".x"}}}},
		Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: "Webhook", Webhook: &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1beta1"},
			ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: new("https://x")}}}}
	if !equality.Semantic.DeepEqual(d.Spec, want) {
		t.Error(diff.Diff(want, d.Spec))
	}
}
