package admissiontest

import (
	"testing"

	"sigs.k8s.io/yaml"
)

// Parse decodes YAML into obj and returns obj.
func Parse[O any](t testing.TB, obj O, text string) O {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return obj
}

// Same fails the test unless got and want are equal as YAML.
func Same(t testing.TB, got, want any) {
	t.Helper()
	g, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	w, err := yaml.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(g) != string(w) {
		t.Errorf("got\n%swant\n%s", g, w)
	}
}
