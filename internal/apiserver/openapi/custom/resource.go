package custom

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime/schema"
	builderutil "k8s.io/kube-openapi/pkg/builder3/util"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"skiff/internal/apiserver/openapi/routes"
)

// Resource is one served version of a CustomResourceDefinition, as the documents describe it.
type Resource struct {
	GVK              schema.GroupVersionKind
	ListKind, Plural string
	Namespaced       bool
	// Schema is the structural schema of the version. It is not modified. nil says that there is none, or none that is structural: the
	// definition is then a bare object.
	Schema *structuralschema.Structural
	// PreserveUnknownFields is that of the definition's spec. A schema that preserves them at its root has the same effect.
	PreserveUnknownFields bool
	Status, Scale         bool
	// SelectableFields are the JSON paths of the version's selectable fields, with or without the leading dot.
	SelectableFields []string
}

var (
	objectVerbs      = []string{"list", "create", "deletecollection", "get", "update", "patch", "delete"}
	subresourceVerbs = []string{"get", "update", "patch"}
)

// service returns the operations of a resource.
func (r *Resource) service() *routes.Service {
	gv := r.GVK.GroupVersion()
	endpoint := func(subresource string, verbs []string, model routes.Model) *routes.Endpoint {
		return &routes.Endpoint{GroupVersion: gv, Resource: r.Plural, Subresource: subresource, Namespaced: r.Namespaced, Verbs: verbs,
			ResourceKind: r.GVK.Kind, Kind: r.GVK, Model: model, ListModel: r.listModel(), Custom: true}
	}
	endpoints := []*routes.Endpoint{endpoint("", objectVerbs, r.model())}
	if r.Status {
		endpoints = append(endpoints, endpoint("status", subresourceVerbs, r.model()))
	}
	if r.Scale {
		endpoints = append(endpoints, endpoint("scale", subresourceVerbs, scaleModel))
	}
	return routes.CustomGroupVersion(gv, endpoints)
}

func (r *Resource) model() routes.Model { return modelOf(r.GVK) }
func (r *Resource) listModel() routes.Model {
	return modelOf(r.GVK.GroupVersion().WithKind(r.ListKind))
}

// modelOf returns the name of a kind's definition, such as com.example.stable.v1.CronTab.
func modelOf(gvk schema.GroupVersionKind) routes.Model {
	labels := strings.Split(gvk.Group, ".")
	slices.Reverse(labels)
	return routes.Model(strings.Join(labels, ".") + "." + gvk.Version + "." + gvk.Kind)
}

// check returns an error if the resource cannot be described.
func (r *Resource) check(gv schema.GroupVersion) error {
	switch {
	case r.GVK.GroupVersion() != gv:
		return fmt.Errorf("%s is not of %s", r.GVK, gv)
	case r.GVK.Kind == "" || r.ListKind == "" || r.Plural == "" || gv.Group == "" || gv.Version == "":
		return fmt.Errorf("%s has no kind, list kind, plural, group or version", r.GVK)
	default:
		return nil
	}
}

// referred returns an empty definition for each to which operations refer: kube-openapi's builders want to see them.
func (r *Resource) referred() map[string]common.OpenAPIDefinition {
	all := map[string]common.OpenAPIDefinition{string(r.model()): {}, string(r.listModel()): {}}
	for _, name := range sharedModels {
		all[name] = common.OpenAPIDefinition{}
	}
	return all
}

// addDefinitions adds the definitions of a resource and its list.
func (r *Resource) addDefinitions(all map[string]json.RawMessage, v dialect) error {
	for model, definition := range map[routes.Model]*spec.Schema{r.model(): r.object(v), r.listModel(): r.list(v)} {
		if v == v3 {
			definition = builderutil.WrapRefs(definition)
		}
		encoded, err := definition.MarshalJSON()
		if err != nil {
			return fmt.Errorf("the definition of %s: %w", model, err)
		}
		all[string(model)] = encoded
	}
	return nil
}

// definitionName is what kube-openapi's builders ask for the name of a definition in the document.
func definitionName(name string) (string, spec.Extensions) { return name, nil }

// commonResponse is the response that every operation documents beside its own.
const commonResponse = "Unauthorized"
