package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/openapi/routes"
)

// served is a resource, or a subresource, whose name has a slash.
type served struct {
	gv         schema.GroupVersion
	name       string
	kind       schema.GroupVersionKind
	namespaced bool
	verbs      []string
}

// deletionReturnsObject are the resources whose deletion, in upstream's documents, returns the object.
var deletionReturnsObject = map[schema.GroupResource]bool{
	{Resource: "persistentvolumeclaims"}:                           true,
	{Resource: "persistentvolumes"}:                                true,
	{Resource: "pods"}:                                             true,
	{Resource: "podtemplates"}:                                     true,
	{Resource: "resourcequotas"}:                                   true,
	{Resource: "serviceaccounts"}:                                  true,
	{Resource: "services"}:                                         true,
	{Group: "resource.k8s.io", Resource: "deviceclasses"}:          true,
	{Group: "resource.k8s.io", Resource: "resourceclaims"}:         true,
	{Group: "resource.k8s.io", Resource: "resourceclaimtemplates"}: true,
	{Group: "resource.k8s.io", Resource: "resourceslices"}:         true,
	{Group: "storage.k8s.io", Resource: "csidrivers"}:              true,
	{Group: "storage.k8s.io", Resource: "csinodes"}:                true,
	{Group: "storage.k8s.io", Resource: "storageclasses"}:          true,
	{Group: "storage.k8s.io", Resource: "volumeattachments"}:       true,
	{Group: "storage.k8s.io", Resource: "volumeattributesclasses"}: true,
}

// passThrough are the methods of proxy endpoints; other connect endpoints have GET and POST.
var passThrough = []string{"GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH"}

// endpoints returns the endpoints of the served resources.
func endpoints(all []served, scheme *runtime.Scheme) ([]*routes.Endpoint, error) {
	kinds := map[schema.GroupVersionResource]string{}
	for _, s := range all {
		kinds[s.gv.WithResource(s.name)] = s.kind.Kind
	}
	model := func(gvk schema.GroupVersionKind) (routes.Model, error) {
		name, err := scheme.ToOpenAPIDefinitionName(gvk)
		return routes.Model(name), err
	}
	var list []*routes.Endpoint
	for _, s := range all {
		resource, subresource, _ := strings.Cut(s.name, "/")
		e := &routes.Endpoint{GroupVersion: s.gv, Resource: resource, Subresource: subresource, Namespaced: s.namespaced,
			Verbs: s.verbs, Kind: s.kind, ResourceKind: kinds[s.gv.WithResource(resource)],
			DeleteReturnsObject: deletionReturnsObject[s.gv.WithResource(s.name).GroupResource()]}
		var err error
		switch {
		case strings.HasSuffix(s.kind.Kind, "Options"):
			e.Connect = true
			e.WithPath = subresource == "proxy"
			e.Methods = passThrough
			if !e.WithPath {
				e.Methods = []string{"GET", "POST"}
			}
			e.Options, err = scheme.New(s.kind)
		case subresource == "log":
			e.Text = true
			e.Options, err = scheme.New(s.kind.GroupVersion().WithKind(s.kind.Kind + "LogOptions"))
		default:
			e.Model, err = model(s.kind)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", s.gv, s.name, err)
		}
		if slices.Contains(s.verbs, "list") {
			if e.ListModel, err = model(s.kind.GroupVersion().WithKind(s.kind.Kind + "List")); err != nil {
				return nil, fmt.Errorf("%s %s: %w", s.gv, s.name, err)
			}
		}
		list = append(list, e)
	}
	return list, nil
}
