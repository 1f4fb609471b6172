package custom

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"skiff/internal/apiserver/openapi/routes"
)

// V3 returns the OpenAPI v3 document of the custom resources of a group version, as JSON.
func V3(gv schema.GroupVersion, resources []Resource) ([]byte, error) {
	document := struct {
		OpenAPI string                 `json:"openapi"`
		Info    *spec.Info             `json:"info"`
		Paths   map[string]*spec3.Path `json:"paths"`

		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}{OpenAPI: "3.0.0", Info: &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes CRD Swagger", Version: "v0.1.0"}},
		Paths: map[string]*spec3.Path{}}
	document.Components.Schemas = map[string]json.RawMessage{}
	var shared []string // definitions to add
	for i := range resources {
		r := &resources[i]
		built, err := r.v3(gv)
		if err != nil {
			return nil, fmt.Errorf("the OpenAPI v3 document of %s: %w", r.GVK, err)
		}
		for path, item := range built.Paths.Paths {
			document.Paths[path] = item
		}
		for name, s := range built.Components.Schemas {
			if slices.Contains(sharedModels, name) {
				shared = append(shared, name)
				continue
			}
			encoded, err := encode(s)
			if err != nil {
				return nil, fmt.Errorf("the definition of %s: %w", name, err)
			}
			document.Components.Schemas[name] = encoded
			shared = append(shared, references(encoded)...)
		}
	}
	if err := addShared(document.Components.Schemas, shared); err != nil {
		return nil, err
	}
	return encode(document)
}

func (r *Resource) v3(gv schema.GroupVersion) (*spec3.OpenAPI, error) {
	if err := r.check(gv); err != nil {
		return nil, err
	}
	definitions := r.definitions(v3)
	return builder3.BuildOpenAPISpecFromRoutes([]common.RouteContainer{r.service()}, &common.OpenAPIV3Config{
		CommonResponses:                map[int]*spec3.Response{401: {ResponseProps: spec3.ResponseProps{Description: commonResponse}}},
		Definitions:                    definitions,
		GetDefinitionName:              definitionName,
		GetOperationIDAndTagsFromRoute: routes.OperationID,
	})
}
