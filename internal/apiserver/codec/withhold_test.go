package codec

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWithhold(t *testing.T) {
	for text, want := range map[string]string{
		"yaml: line 2: did not find expected key":                         "",
		"illegal base64 data at input byte 0":                             "",
		`conflict with "one": .data.password`:                             "",
		"yaml: unknown anchor 'SECRET' referenced":                        "yaml: unknown anchor '",
		"yaml: cannot decode !!str `SECRET` as a !!int":                   "yaml: cannot decode !!str `",
		`yaml: invalid map key: []interface {}{"SECRET"}`:                 "yaml: invalid map key: ",
		"unknown patch type: SECRET in map: map[$patch:SECRET]":           "unknown patch type: ",
		".data: expected map, got &{SECRET}":                              ".data: expected map, got ",
		".data.x: expected string, got &value.valueUnstructured{\"SECRET": ".data.x: expected string, got ",
	} {
		if want == "" {
			want = text
		} else {
			want += Withheld
		}
		if got := Withhold(text); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// Errors show bodies that cannot be decoded, except for those of secrets.
func TestUnreadableSecret(t *testing.T) {
	const body = `{"token":"SECRET"`
	for kind, shown := range map[schema.GroupVersionKind]bool{
		{Version: "v1", Kind: "ConfigMap"}:                                         true,
		{Version: "v1", Kind: "Secret"}:                                            false,
		{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenReview"}:       false,
		{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"}:      false,
		{Group: "authentication.k8s.io", Version: "v1", Kind: "SelfSubjectReview"}: true,
	} {
		_, err := Decode([]byte(body), JSON, kind, nil, Warn)
		if err == nil || strings.Contains(err.Error(), "SECRET") != shown {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
