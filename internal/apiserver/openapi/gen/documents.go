package main

import (
	"encoding/json"
	"maps"
	"slices"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"skiff/internal/apiserver/openapi/gen/definitions"
	"skiff/internal/apiserver/openapi/routes"
)

const (
	title        = "Kubernetes"
	version      = "1.37" // the minor release, as in upstream's documents
	gvkExtension = "x-kubernetes-group-version-kind"
)

// document is a JSON document with its path below /openapi/v3/, or pathV2.
type document struct {
	path string
	json []byte
}

const pathV2 = "v2"

func buildDocuments(endpoints []*routes.Endpoint, names namer) ([]document, error) {
	all := services(endpoints)
	v2, err := buildV2(all, names)
	if err != nil {
		return nil, err
	}
	data, err := v2.MarshalJSON() // json.Marshal would write < and > as escapes
	if err != nil {
		return nil, err
	}
	documents := []document{{pathV2, data}}
	for _, s := range all {
		v3, err := buildV3(s, names)
		if err != nil {
			return nil, err
		}
		if data, err = json.Marshal(v3); err != nil {
			return nil, err
		}
		documents = append(documents, document{strings.TrimPrefix(s.RootPath(), "/"), data})
	}
	return documents, nil
}

// services returns everything that has a path in the documents.
func services(endpoints []*routes.Endpoint) []*routes.Service {
	byVersion := map[schema.GroupVersion][]*routes.Endpoint{}
	groups := map[string]bool{}
	for _, e := range endpoints {
		byVersion[e.GroupVersion] = append(byVersion[e.GroupVersion], e)
		groups[e.GroupVersion.Group] = true
	}
	all := []*routes.Service{routes.CoreVersions(), routes.Groups(), routes.Version(),
		routes.OpenIDConfiguration(), routes.OpenIDKeys()}
	for gv, endpoints := range byVersion {
		all = append(all, routes.GroupVersion(gv, endpoints))
	}
	for group := range groups {
		if group != "" {
			all = append(all, routes.Group(group))
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].RootPath() < all[j].RootPath() })
	return all
}

// buildV2 builds the OpenAPI v2 document. Like upstream's it has no defaults: older clients fail on them.
func buildV2(services []*routes.Service, names namer) (*spec.Swagger, error) {
	token := spec.SecurityDefinitions{"BearerToken": &spec.SecurityScheme{SecuritySchemeProps: spec.SecuritySchemeProps{
		Type: "apiKey", Name: "authorization", In: "header", Description: "Bearer Token authentication"}}}
	document, err := builder.BuildOpenAPISpecFromRoutes(containers(services), &common.Config{
		ProtocolList:                   []string{"https"},
		Info:                           &spec.Info{InfoProps: spec.InfoProps{Title: title, Version: version}},
		CommonResponses:                map[int]spec.Response{401: {ResponseProps: spec.ResponseProps{Description: "Unauthorized"}}},
		GetDefinitions:                 definitions.GetOpenAPIDefinitions,
		GetDefinitionName:              names.definition,
		GetOperationIDAndTagsFromRoute: routes.OperationID,
		SecurityDefinitions:            &token,
		DefaultSecurity:                []map[string][]string{{"BearerToken": {}}},
	})
	if err != nil {
		return nil, err
	}
	document.Definitions = handler.PruneDefaults(document.Definitions)
	return document, nil
}

// buildV3 builds the OpenAPI v3 document of one service.
func buildV3(service *routes.Service, names namer) (*spec3.OpenAPI, error) {
	document, err := builder3.BuildOpenAPISpecFromRoutes(containers([]*routes.Service{service}), &common.OpenAPIV3Config{
		Info: &spec.Info{InfoProps: spec.InfoProps{Title: title, Version: version}},
		CommonResponses: map[int]*spec3.Response{
			401: {ResponseProps: spec3.ResponseProps{Description: "Unauthorized"}}},
		GetDefinitions:                 definitions.GetOpenAPIDefinitions,
		GetDefinitionName:              names.definition,
		GetOperationIDAndTagsFromRoute: routes.OperationID,
		SecuritySchemes: spec3.SecuritySchemes{"BearerToken": &spec3.SecurityScheme{SecuritySchemeProps: spec3.SecuritySchemeProps{
			Type: "apiKey", Name: "authorization", In: "header", Description: "Bearer Token authentication"}}},
	})
	if err != nil {
		return nil, err
	}
	if gv, ok := service.GroupVersion(); ok {
		keepOwnVersion(document.Components.Schemas, gv)
	}
	return document, nil
}

// keepOwnVersion removes, from the kinds that exist in every group version, all group versions except for the document's own
// and the core's.
func keepOwnVersion(schemas map[string]*spec.Schema, gv schema.GroupVersion) {
	for _, s := range schemas {
		gvks, _ := s.Extensions[gvkExtension].([]any)
		if len(gvks) < 2 {
			continue
		}
		if kind := gvks[0].(map[string]any)["kind"]; kind != "WatchEvent" && kind != "DeleteOptions" {
			continue
		}
		s.Extensions[gvkExtension] = slices.DeleteFunc(slices.Clone(gvks), func(v any) bool {
			gvk := v.(map[string]any)
			own := gvk["group"] == gv.Group && gvk["version"] == gv.Version
			core := gvk["group"] == "" && gvk["version"] == "v1"
			return !own && !core
		})
	}
}

func containers(services []*routes.Service) []common.RouteContainer {
	list := make([]common.RouteContainer, len(services))
	for i, s := range services {
		list[i] = s
	}
	return list
}

// namer holds the group version kinds of each definition.
type namer map[string][]metav1.GroupVersionKind

func newNamer(scheme *runtime.Scheme) (namer, error) {
	n := namer{}
	for gvk := range scheme.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal {
			continue
		}
		name, err := scheme.ToOpenAPIDefinitionName(gvk)
		if err != nil {
			return nil, err
		}
		n[name] = append(n[name], metav1.GroupVersionKind(gvk))
	}
	for _, gvks := range n {
		sort.Slice(gvks, func(i, j int) bool {
			a, b := gvks[i], gvks[j]
			return slices.Compare([]string{a.Group, a.Version, a.Kind}, []string{b.Group, b.Version, b.Kind}) < 0
		})
	}
	return n, nil
}

// definition returns the name of a definition in the documents, and its group version kinds as an extension.
func (n namer) definition(name string) (string, spec.Extensions) {
	gvks, ok := n[name]
	if !ok {
		return name, nil
	}
	list := make([]any, len(gvks))
	for i, gvk := range gvks {
		list[i] = map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
	}
	return name, spec.Extensions{gvkExtension: list}
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
