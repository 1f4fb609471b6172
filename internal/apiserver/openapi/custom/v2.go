package custom

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"skiff/internal/apiserver/openapi/routes"
)

// V2 returns the part of the OpenAPI v2 document that describes resources of one group version, as JSON. It refers to definitions and parameters
// of the document into which it is merged. A definition's part can be built alone: pass its versions one by one, or several resources of a version.
func V2(gv schema.GroupVersion, resources []Resource) ([]byte, error) {
	var paths []string
	definitions := map[string]json.RawMessage{}
	for i := range resources {
		r := &resources[i]
		err := r.check(gv)
		if err == nil {
			var built string
			built, err = r.paths(v2)
			paths = append(paths, built)
		}
		if err == nil {
			err = r.addDefinitions(definitions, v2)
		}
		if err != nil {
			return nil, fmt.Errorf("the OpenAPI v2 document of %s: %w", r.GVK, err)
		}
	}
	return fmt.Appendf(nil, `{"paths":{%s},"definitions":{%s}}`, strings.Join(paths, ","), members(definitions)), nil
}

// buildPathsV2 returns the paths of a resource from its routes. Parameters are references to those of the built-in document, which has them all.
func (r *Resource) buildPathsV2() (any, error) {
	document, err := builder.BuildOpenAPISpecFromRoutes([]common.RouteContainer{r.service()}, &common.Config{
		ProtocolList:    []string{"https"},
		CommonResponses: map[int]spec.Response{401: {ResponseProps: spec.ResponseProps{Description: commonResponse}}},
		GetDefinitions: func(common.ReferenceCallback) map[string]common.OpenAPIDefinition {
			return r.referred()
		},
		GetDefinitionName:              definitionName,
		GetOperationIDAndTagsFromRoute: routes.OperationID,
	})
	if err != nil {
		return nil, err
	}
	return document.Paths.Paths, nil
}

// buildPaths returns the paths of a resource from its routes, as members of a JSON object.
func (r *Resource) buildPaths(v dialect) (string, error) {
	build := r.buildPathsV3
	if v == v2 {
		build = r.buildPathsV2
	}
	paths, err := build()
	if err != nil {
		return "", err
	}
	encoded, err := encode(paths)
	if err != nil {
		return "", err
	}
	return string(encoded[1 : len(encoded)-1]), nil
}

// members returns the members of a JSON object, sorted by name. The names need no escapes.
func members(values map[string]json.RawMessage) []byte {
	var out bytes.Buffer
	for i, name := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, `"%s":`, name)
		out.Write(values[name])
	}
	return out.Bytes()
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
