package main

import (
	"skiff/internal/catalog"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fromCatalog returns the resources and subresources that the catalog declares.
func fromCatalog(infos []*catalog.Info) []served {
	var all []served
	for _, i := range infos {
		gv := i.GVR.GroupVersion()
		add := func(subresource string, kind schema.GroupVersionKind, verbs []string) {
			name := i.GVR.Resource
			if subresource != "" {
				name += "/" + subresource
			}
			all = append(all, served{gv: gv, name: name, kind: kind, namespaced: i.Namespaced, verbs: verbs})
		}
		add("", i.GVK, i.Verbs)
		stored := i.Stored // a view has the edits of the stored resource
		for _, e := range stored.Edits {
			add(e.Name, i.GVK, e.Verbs)
		}
		if stored.Scale != nil {
			add("scale", schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, []string{"get", "patch", "update"})
		}
		for _, s := range stored.Subresources {
			kind := gv.WithKind(s.Kind)
			if s.Group != "" {
				kind.Group = s.Group
			}
			if s.Version != "" {
				kind.Version = s.Version
			}
			add(s.Name, kind, s.Verbs)
		}
	}
	return all
}
