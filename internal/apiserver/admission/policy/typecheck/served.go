package typecheck

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/catalog"
)

// Served returns the kinds and schemas of what a server serves: its resources, by their plural and singular names, and its OpenAPI v3 documents, by paths such
// as "apis/apps/v1".
func Served(resources iter.Seq2[schema.GroupVersionResource, schema.GroupVersionKind], document func(path string) ([]byte, error)) Schemas {
	return Schemas{
		Kinds:    func(gvr schema.GroupVersionResource) []schema.GroupVersionKind { return kindsNamed(resources, gvr) },
		Document: func(gv schema.GroupVersion) ([]byte, error) { return document(documentPath(gv)) },
	}
}

// Resources returns the names and kinds of resources.
func Resources(infos []*catalog.Info) iter.Seq2[schema.GroupVersionResource, schema.GroupVersionKind] {
	return func(yield func(schema.GroupVersionResource, schema.GroupVersionKind) bool) {
		for _, info := range infos {
			if !yield(info.GVR, info.GVK) || !yield(info.GVR.GroupVersion().WithResource(info.Singular), info.GVK) {
				return
			}
		}
	}
}

// kindsNamed returns the kinds of the resources of a name. As upstream, whose RESTMapper takes an empty group for any, it looks for those of the core group in
// all groups.
func kindsNamed(resources iter.Seq2[schema.GroupVersionResource, schema.GroupVersionKind], gvr schema.GroupVersionResource) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for name, kind := range resources {
		if gvr.Group == "" {
			name.Group = ""
		}
		if name == gvr && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func documentPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}
