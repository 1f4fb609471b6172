package routes

import (
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Endpoint describes a resource or a subresource for its operations.
type Endpoint struct {
	GroupVersion schema.GroupVersion // in which it is served
	Resource     string
	Subresource  string // empty for the resource itself
	Namespaced   bool
	Verbs        []string // as discovery lists them
	ResourceKind string   // the kind of Resource, also when this is a subresource

	Kind      schema.GroupVersionKind // the kind that is read and written
	Model     Model
	ListModel Model // only if Verbs has list

	DeleteReturnsObject bool // a deletion returns the object, not a Status

	// Connect marks an endpoint that passes requests through (exec, proxy). Methods are its HTTP methods, and WithPath says that it also
	// has paths below its own, which are passed on.
	Connect  bool
	Methods  []string
	WithPath bool

	// Options is a pointer to a struct with the query parameters of a Connect endpoint, or the additional ones of get.
	Options any
	// Text says that get returns plain text instead of the object.
	Text bool

	// Custom says that the resource is defined by a CustomResourceDefinition. Upstream documents those without protobuf, strategic merge
	// patch and watch paths.
	Custom bool
}

// Model is the name of a definition. The empty name is plain text.
type Model string

// OpenAPIModelName makes a Model usable as a sample for kube-openapi's builders.
func (m Model) OpenAPIModelName() string {
	if m == "" {
		return "string"
	}
	return string(m)
}

// The definitions that operations of any resource refer to.
const (
	meta          = "io.k8s.apimachinery.pkg.apis.meta.v1."
	statusModel   = Model(meta + "Status")
	deleteModel   = Model(meta + "DeleteOptions")
	patchModel    = Model(meta + "Patch")
	watchModel    = Model(meta + "WatchEvent")
	resourceModel = Model(meta + "APIResourceList")
	groupModel    = Model(meta + "APIGroup")
	groupsModel   = Model(meta + "APIGroupList")
	versionsModel = Model(meta + "APIVersions")
)

var (
	objectTypes = []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"}
	streamTypes = []string{"application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"}
	listTypes   = slices.Concat(objectTypes, streamTypes)
	patchTypes  = []string{string(types.JSONPatchType), string(types.MergePatchType),
		string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType)}
	anyType = []string{"*/*"}

	customTypes      = []string{"application/json", "application/yaml"}
	customPatchTypes = []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType)}
)

// place is one of the paths of an endpoint.
type place struct {
	path          string
	parameters    []*Parameter
	allNamespaces bool
}

// routes returns the operations of an endpoint below root, the path of its group version.
func (e *Endpoint) routes(root string) []*Route {
	collection, item, everywhere := e.places(root)
	watch := func(p place) place {
		p.path = root + "/watch" + strings.TrimPrefix(p.path, root)
		return p
	}
	var routes []*Route
	add := func(verb string, route func(place) *Route, places ...place) {
		if !slices.Contains(e.Verbs, verb) {
			return
		}
		for _, p := range places {
			routes = append(routes, route(p))
		}
	}
	if e.Connect {
		for _, method := range e.Methods {
			routes = append(routes, e.connect(method, item))
			if e.WithPath {
				routes = append(routes, e.connect(method, e.withPath(item)))
			}
		}
		return routes
	}
	collections := []place{collection}
	if everywhere != nil {
		collections = append(collections, *everywhere)
	}
	add("list", e.list, collections...)
	add("create", e.create, collection)
	add("deletecollection", e.deleteCollection, collection)
	add("get", e.read, item)
	add("update", e.replace, item)
	add("patch", e.patch, item)
	add("delete", e.delete, item)
	if e.Custom {
		return routes
	}
	add("watch", e.watch, watch(item))
	if slices.Contains(e.Verbs, "list") {
		for _, c := range collections {
			add("watch", e.watchList, watch(c))
		}
	}
	return routes
}

// places returns the paths of the collection, of one item, and for namespaced resources of the collection across namespaces.
// A subresource has only the path of its item.
func (e *Endpoint) places(root string) (collection, item place, everywhere *place) {
	path, parameters := root+"/"+e.Resource, []*Parameter(nil)
	if e.Namespaced {
		if e.Subresource == "" {
			everywhere = &place{path: path, allNamespaces: true}
		}
		path = root + "/namespaces/{namespace}/" + e.Resource
		parameters = append(parameters, pathParameter("namespace", "object name and auth scope, such as for teams and projects"))
	}
	collection = place{path: path, parameters: parameters}
	// In upstream's documents the name is that of the endpoint's own kind, even if it reads "name of the PodExecOptions".
	item = place{path: path + "/{name}",
		parameters: append(slices.Clone(parameters), pathParameter("name", "name of the "+e.kind().Kind))}
	if e.Subresource != "" {
		item.path += "/" + e.Subresource
		collection = item
	}
	return collection, item, everywhere
}

// kind returns the documented kind of an endpoint: for custom resources that of the resource, even for a Scale.
func (e *Endpoint) kind() schema.GroupVersionKind {
	if e.Custom {
		return e.GroupVersion.WithKind(e.ResourceKind)
	}
	return e.Kind
}

func (e *Endpoint) withPath(p place) place {
	return place{path: p.path + "/{path}", parameters: append(slices.Clone(p.parameters), pathParameter("path", "path to the resource"))}
}

// route returns a new operation. verb is for the operation's name, action for x-kubernetes-action.
func (e *Endpoint) route(method, verb, action, suffix string, p place) *Route {
	operation := verb
	if e.Namespaced && !p.allNamespaces {
		operation += "Namespaced"
	}
	operation += e.ResourceKind + capitalize(e.Subresource) + suffix
	if p.allNamespaces {
		operation += "ForAllNamespaces"
	}
	r := &Route{method: method, path: p.path, operation: operation, parameters: slices.Clone(p.parameters),
		consumes: anyType, produces: objectTypes,
		metadata: map[string]any{
			"x-kubernetes-action":             action,
			"x-kubernetes-group-version-kind": metav1.GroupVersionKind(e.kind()),
		}}
	if e.Custom {
		r.consumes, r.produces = customTypes, customTypes
	}
	if action != "connect" {
		r.parameters = append(r.parameters, queryParameter("pretty", prettyDoc))
	}
	return r
}

func (e *Endpoint) list(p place) *Route {
	r := e.route(http.MethodGet, "list", "list", "", p).query(&metav1.ListOptions{}).returns(e.ListModel, http.StatusOK)
	what := "objects of kind " + e.ResourceKind
	if e.Subresource != "" {
		what = e.Subresource + " of " + what
	}
	r.description = "list " + what
	if e.Custom {
		return r
	}
	r.produces = listTypes
	if slices.Contains(e.Verbs, "watch") {
		r.description = "list or watch " + what
	}
	return r
}

func (e *Endpoint) create(p place) *Route {
	r := e.route(http.MethodPost, "create", "post", "", p).query(&metav1.CreateOptions{}).takes(e.Model, true).
		returns(e.Model, http.StatusOK, http.StatusCreated, http.StatusAccepted)
	r.description = e.describe("create")
	return r
}

func (e *Endpoint) read(p place) *Route {
	r := e.route(http.MethodGet, "read", "get", "", p)
	switch {
	case e.Custom:
		r.query(&metav1.GetOptions{})
	case e.Options != nil:
		r.query(e.Options)
	}
	r.description = e.describeSpecified("read")
	if e.Text {
		r.produces = slices.Concat([]string{"text/plain"}, objectTypes)
		return r.returns("", http.StatusOK)
	}
	return r.returns(e.Model, http.StatusOK)
}

func (e *Endpoint) replace(p place) *Route {
	r := e.route(http.MethodPut, "replace", "put", "", p).query(&metav1.UpdateOptions{}).takes(e.Model, true).
		returns(e.Model, http.StatusOK, http.StatusCreated)
	r.description = e.describeSpecified("replace")
	return r
}

func (e *Endpoint) patch(p place) *Route {
	r := e.route(http.MethodPatch, "patch", "patch", "", p).query(&metav1.PatchOptions{}).takes(patchModel, true).returns(e.Model, http.StatusOK)
	r.description = e.describeSpecified("partially update")
	if e.Custom {
		r.consumes = customPatchTypes
		return r
	}
	r.consumes = patchTypes
	return r.returns(e.Model, http.StatusCreated) // server-side apply creates
}

func (e *Endpoint) delete(p place) *Route {
	returned := statusModel
	if e.DeleteReturnsObject {
		returned = e.Model
	}
	r := e.route(http.MethodDelete, "delete", "delete", "", p).query(&metav1.DeleteOptions{}).takes(deleteModel, false).
		returns(returned, http.StatusOK, http.StatusAccepted)
	r.description = e.describe("delete")
	return r
}

func (e *Endpoint) deleteCollection(p place) *Route {
	r := e.route(http.MethodDelete, "deletecollection", "deletecollection", "", p).returns(statusModel, http.StatusOK)
	if e.Custom {
		r.query(&metav1.ListOptions{})
	} else {
		r.query(&metav1.DeleteOptions{}).query(&metav1.ListOptions{}, "watch", "allowWatchBookmarks").takes(deleteModel, false)
	}
	r.description = "delete collection of " + e.ResourceKind
	if e.Subresource != "" {
		r.description = "delete collection of " + e.Subresource + " of a " + e.ResourceKind
	}
	return r
}

func (e *Endpoint) watch(p place) *Route {
	what := "an object of kind " + e.ResourceKind
	if e.Subresource != "" {
		what = e.Subresource + " of " + what
	}
	return e.watchRoute("watch", "", "watch changes to "+what+". deprecated: use the 'watch' parameter with a list "+
		"operation instead, filtered to a single item with the 'fieldSelector' parameter.", p)
}

func (e *Endpoint) watchList(p place) *Route {
	what := e.ResourceKind
	if e.Subresource != "" {
		what = e.Subresource + " of " + what
	}
	return e.watchRoute("watchlist", "List", "watch individual changes to a list of "+what+
		". deprecated: use the 'watch' parameter with a list operation instead.", p)
}

func (e *Endpoint) watchRoute(action, suffix, description string, p place) *Route {
	r := e.route(http.MethodGet, "watch", action, suffix, p).query(&metav1.ListOptions{}).returns(watchModel, http.StatusOK)
	r.produces = listTypes
	r.description = description
	return r
}

func (e *Endpoint) connect(method string, p place) *Route {
	suffix := ""
	if strings.HasSuffix(p.path, "/{path}") {
		suffix = "WithPath"
	}
	r := e.route(method, "connect"+capitalize(strings.ToLower(method)), "connect", suffix, p)
	if e.Options != nil {
		r.query(e.Options)
	}
	r.description = "connect " + method + " requests to " + e.Subresource + " of " + e.ResourceKind
	r.produces = anyType
	return r.returns("", http.StatusOK)
}

func (e *Endpoint) describeSpecified(verb string) string {
	if e.Subresource != "" {
		return verb + " " + e.Subresource + " of the specified " + e.ResourceKind
	}
	return verb + " the specified " + e.ResourceKind
}

// describe returns a description of an operation on one object.
func (e *Endpoint) describe(verb string) string {
	if e.Subresource != "" {
		verb += " " + e.Subresource + " of"
	}
	return Describe(verb, e.ResourceKind)
}

// Describe returns a verb and a kind with its article: "create a Pod", "create an Event", "create Endpoints".
func Describe(verb, kind string) string {
	switch {
	case strings.HasSuffix(kind, "s") && !strings.HasSuffix(kind, "ss"): // a plural
		return verb + " " + kind
	case strings.ContainsRune("AEIOUaeiou", rune(kind[0])):
		return verb + " an " + kind
	default:
		return verb + " a " + kind
	}
}

func capitalize(word string) string {
	if word == "" {
		return ""
	}
	return strings.ToUpper(word[:1]) + word[1:]
}
