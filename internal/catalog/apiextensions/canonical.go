package apiextensions

import (
	"bytes"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// canonicalize gives the JSON values in a definition's schemas the form in which upstream, which converts them to an internal type and back,
// stores them.
func canonicalize(s *apiextensionsv1.CustomResourceDefinitionSpec) {
	for i := range s.Versions {
		if v := s.Versions[i].Schema; v != nil {
			canonicalizeSchema(v.OpenAPIV3Schema)
		}
	}
}

func canonicalizeSchema(s *apiextensionsv1.JSONSchemaProps) {
	eachSchema(s, func(s *apiextensionsv1.JSONSchemaProps) {
		canonicalizeJSON(s.Default)
		canonicalizeJSON(s.Example)
		for i := range s.Enum {
			canonicalizeJSON(&s.Enum[i])
		}
	})
}

// canonicalizeJSON sorts the keys of a value and writes its numbers as upstream does. Malformed values are left to validation.
func canonicalizeJSON(value *apiextensionsv1.JSON) {
	if value == nil || len(value.Raw) == 0 {
		return
	}
	var decoded any
	if json.Unmarshal(value.Raw, &decoded) != nil {
		return
	}
	if raw, err := json.Marshal(decoded); err == nil && !bytes.Equal(raw, value.Raw) {
		value.Raw = raw
	}
}
