package custom

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/spec3"

	"skiff/internal/apiserver/openapi/routes"
)

// V3 returns the OpenAPI v3 document of the custom resources of a group version, as JSON.
func V3(gv schema.GroupVersion, resources []Resource) ([]byte, error) {
	var paths []string
	schemas := map[string]json.RawMessage{}
	for i := range resources {
		r := &resources[i]
		err := r.check(gv)
		if err == nil {
			var built string
			built, err = r.paths(v3)
			paths = append(paths, built)
		}
		if err == nil {
			err = r.addDefinitions(schemas, v3)
		}
		if err != nil {
			return nil, fmt.Errorf("the OpenAPI v3 document of %s: %w", r.GVK, err)
		}
	}
	joined := strings.Join(paths, ",")
	shared := references(joined)
	for _, definition := range schemas {
		shared = append(shared, references(string(definition))...)
	}
	if err := addShared(schemas, shared); err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"openapi":"3.0.0","info":{"title":"Kubernetes CRD Swagger","version":"v0.1.0"},"paths":{%s},"components":{"schemas":{%s}}}`,
		joined, members(schemas)), nil
}

// buildPathsV3 returns the paths of a resource from its routes.
func (r *Resource) buildPathsV3() (any, error) {
	document, err := builder3.BuildOpenAPISpecFromRoutes([]common.RouteContainer{r.service()}, &common.OpenAPIV3Config{
		CommonResponses:                map[int]*spec3.Response{401: {ResponseProps: spec3.ResponseProps{Description: commonResponse}}},
		Definitions:                    r.referred(),
		GetDefinitionName:              definitionName,
		GetOperationIDAndTagsFromRoute: routes.OperationID,
	})
	if err != nil {
		return nil, err
	}
	return document.Paths.Paths, nil
}
