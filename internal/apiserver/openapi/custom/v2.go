package custom

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"skiff/internal/apiserver/openapi/routes"
)

// swagger is the part of an OpenAPI v2 document that concerns some resources.
type swagger struct {
	Paths       map[string]spec.PathItem  `json:"paths"`
	Definitions map[string]spec.Schema    `json:"definitions"`
	Parameters  map[string]spec.Parameter `json:"parameters"`
}

// V2 returns the part of the OpenAPI v2 document that describes resources of one group version, as JSON. It refers to definitions of the
// document into which it is merged. A definition's part can be built alone: pass its versions one by one, or several resources of a version.
func V2(gv schema.GroupVersion, resources []Resource) ([]byte, error) {
	all := swagger{Paths: map[string]spec.PathItem{}, Definitions: map[string]spec.Schema{}, Parameters: map[string]spec.Parameter{}}
	for i := range resources {
		if err := all.add(gv, &resources[i]); err != nil {
			return nil, fmt.Errorf("the OpenAPI v2 document of %s: %w", resources[i].GVK, err)
		}
	}
	return encode(all)
}

func (s *swagger) add(gv schema.GroupVersion, r *Resource) error {
	if err := r.check(gv); err != nil {
		return err
	}
	definitions := r.definitions(v2)
	document, err := builder.BuildOpenAPISpecFromRoutes([]common.RouteContainer{r.service()}, &common.Config{
		ProtocolList:                   []string{"https"},
		CommonResponses:                map[int]spec.Response{401: {ResponseProps: spec.ResponseProps{Description: commonResponse}}},
		GetDefinitions:                 func(common.ReferenceCallback) map[string]common.OpenAPIDefinition { return definitions },
		GetDefinitionName:              definitionName,
		GetOperationIDAndTagsFromRoute: routes.OperationID,
	})
	if err != nil {
		return err
	}
	for path, item := range document.Paths.Paths {
		s.Paths[path] = item
	}
	for name, parameter := range document.Parameters {
		s.Parameters[name] = parameter
	}
	for _, model := range []routes.Model{r.model(), r.listModel()} {
		s.Definitions[string(model)] = definitions[string(model)].Schema
	}
	return nil
}

func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(out.Bytes()), nil
}
