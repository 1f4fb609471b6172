package openapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"skiff/internal/apiserver/managedfields/mergeschema"
	"skiff/internal/apiserver/openapi"
	"skiff/internal/catalog/all"
)

// TestUpToDateWithTheCatalog checks that the generated files are up to date with the catalog. If it fails, run
// go generate ./internal/apiserver/openapi.
func TestUpToDateWithTheCatalog(t *testing.T) {
	documents := map[string]map[string]map[string]any{}
	for _, info := range all.Resources() {
		path := "apis/" + info.GVR.Group + "/" + info.GVR.Version
		if info.GVR.Group == "" {
			path = "api/" + info.GVR.Version
		}
		if documents[path] == nil {
			documents[path] = paths(t, path)
		}
		collection := "/" + path + "/" + info.GVR.Resource
		if info.Namespaced {
			collection = "/" + path + "/namespaces/{namespace}/" + info.GVR.Resource
		}
		check := func(subresource string, verbs []string) {
			for _, verb := range verbs {
				where, method := endpoint(collection, subresource, verb)
				if documents[path][where][method] == nil {
					t.Errorf("%s %s of %s is not documented", method, where, info.GVK)
				}
			}
		}
		check("", info.Verbs)
		for _, e := range info.Stored.Edits {
			check(e.Name, e.Verbs)
		}
		if info.Stored.Scale != nil {
			check("scale", []string{"get", "patch", "update"})
		}
		for _, s := range info.Stored.Subresources {
			check(s.Name, s.Verbs)
		}
		if _, ok := mergeschema.Type(info.GVK); !ok {
			t.Errorf("%s has no merge schema", info.GVK)
		}
	}
}

func paths(t *testing.T, path string) map[string]map[string]any {
	t.Helper()
	data, err := openapi.JSON(path)
	if err != nil {
		t.Error(err)
		return map[string]map[string]any{}
	}
	var document struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	return document.Paths
}

func endpoint(collection, subresource, verb string) (path, method string) {
	item := collection + "/{name}"
	if subresource != "" {
		item += "/" + subresource
		collection = item
	}
	switch verb {
	case "create":
		return collection, "post"
	case "list", "watch":
		return collection, "get"
	case "deletecollection":
		return collection, "delete"
	case "update":
		return item, "put"
	default:
		return item, strings.ToLower(verb)
	}
}
