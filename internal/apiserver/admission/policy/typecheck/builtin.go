package typecheck

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/openapi"
	"skiff/internal/catalog/all"
)

// BuiltIn returns the kinds of the catalog and their schemas.
func BuiltIn() Schemas {
	kinds := sync.OnceValue(func() map[schema.GroupVersionResource][]schema.GroupVersionKind {
		kinds := map[schema.GroupVersionResource][]schema.GroupVersionKind{}
		for _, info := range all.Resources() {
			kinds[info.GVR] = []schema.GroupVersionKind{info.GVK}
		}
		return kinds
	})
	return Schemas{
		Kinds:    func(gvr schema.GroupVersionResource) []schema.GroupVersionKind { return kinds()[gvr] },
		Document: func(gv schema.GroupVersion) ([]byte, error) { return openapi.JSON(documentPath(gv)) },
	}
}

func documentPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}
