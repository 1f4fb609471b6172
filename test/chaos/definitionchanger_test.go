//go:build linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	thingGroup      = "things.chaos.example.com"
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	thingNamespace  = "default"
)

// thingDefinition is a definition that changes while its objects are written and watched. Two versions are always served; what changes at random is which of
// them is stored, their schemas but for what the writers write, by which fields objects can be selected, short names and categories, and, from one
// incarnation to the next, whether objects are in namespaces.
type thingDefinition struct {
	t      *testing.T
	api    *rawAPI
	random *rand.Rand
	number int

	// turn is odd from before the definition is deleted until the next one is established. Requests that were not sent and answered within one even turn may fail.
	turn       atomic.Int64
	namespaced atomic.Bool
	stopped    atomic.Bool

	mu      sync.Mutex
	changes map[string]int
}

func (d *thingDefinition) plural() string { return fmt.Sprint("things", d.number) }
func (d *thingDefinition) kind() string   { return fmt.Sprint("Thing", d.number) }
func (d *thingDefinition) name() string   { return d.plural() + "." + thingGroup }
func (d *thingDefinition) path() string   { return definitionsPath + "/" + d.name() }

// objects returns the path of the objects in a version: those of one namespace, or of the cluster.
func (d *thingDefinition) objects(version string, everywhere bool) string {
	path := "/apis/" + thingGroup + "/" + version
	if d.namespaced.Load() && !everywhere {
		path += "/namespaces/" + thingNamespace
	}
	return path + "/" + d.plural()
}

// versions returns the versions of a random state of the definition. Objects keep their field v in all of them.
func (d *thingDefinition) versions() (versions []apiextensionsv1.CustomResourceDefinitionVersion) {
	stored := d.random.IntN(2)
	for i, name := range []string{"v1", "v2"} {
		spec := map[string]apiextensionsv1.JSONSchemaProps{"v": {Type: "string"}, "w": {Type: "string"}}
		for n := range d.random.IntN(5) {
			spec[fmt.Sprint("f", n)] = apiextensionsv1.JSONSchemaProps{Type: "string", Default: &apiextensionsv1.JSON{Raw: fmt.Appendf(nil, `"%d"`, d.random.IntN(10))}}
		}
		object := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: spec, Description: name} // upstream refuses fields to select by that differ if schemas do not
		if d.random.IntN(2) == 0 {
			object.XValidations = apiextensionsv1.ValidationRules{{Rule: fmt.Sprintf("self.v.size() < %d", 100+d.random.IntN(100))}}
		}
		v := apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: i == stored,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object",
				Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": object}}}}
		if field := []string{".spec.v", ".spec.w"}[i]; d.random.IntN(2) == 0 { // nor the same fields if schemas differ
			v.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: field}}
		}
		versions = append(versions, v)
	}
	return versions
}

// create creates the definition and waits until it is established.
func (d *thingDefinition) create() {
	d.t.Helper()
	scope := apiextensionsv1.ClusterScoped
	namespaced := d.random.IntN(2) == 0
	if namespaced {
		scope = apiextensionsv1.NamespaceScoped
	}
	crd := &apiextensionsv1.CustomResourceDefinition{TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: d.name()}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: thingGroup, Scope: scope, Versions: d.versions(),
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: d.plural(), Singular: fmt.Sprint("thing", d.number), Kind: d.kind(), ListKind: d.kind() + "List"}}}
	until(d.t, "the definition can be created", func() string {
		if made := d.api.call("POST", definitionsPath, crd); !made.ok() {
			if reason := made.status().Reason; reason != metav1.StatusReasonAlreadyExists {
				d.t.Fatalf("creating %s: %v", d.name(), made)
			}
			return made.String()
		}
		return ""
	})
	until(d.t, "the definition is established", func() string {
		if !apihelpers.IsCRDConditionTrue(d.now(), apiextensionsv1.Established) {
			return "it is not"
		}
		return ""
	})
	d.namespaced.Store(namespaced)
	d.turn.Add(1)
}

// now returns the definition.
func (d *thingDefinition) now() *apiextensionsv1.CustomResourceDefinition {
	d.t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	d.api.must(d.t, "GET", d.path(), nil).decode(d.t, crd)
	return crd
}

// replace deletes the definition with its objects, and creates it again at once.
func (d *thingDefinition) replace() {
	d.t.Helper()
	d.turn.Add(1)
	d.api.must(d.t, "DELETE", d.path(), nil)
	d.count("replaced")
	d.create()
}

// change changes the definition at random.
func (d *thingDefinition) change() {
	d.t.Helper()
	what, spec := "versions", map[string]any{"versions": d.versions()}
	if d.random.IntN(3) == 0 {
		names := map[string]any{"shortNames": d.names("s"), "categories": d.names("c"), "singular": fmt.Sprintf("thing%d", d.number)}
		what, spec = "names", map[string]any{"names": names}
	}
	d.api.must(d.t, http.MethodPatch, d.path(), map[string]any{"spec": spec})
	d.count(what)
}

// names returns random names. The definitions fight for the few that they have in common.
func (d *thingDefinition) names(prefix string) []string {
	names := []string{}
	for range d.random.IntN(3) {
		name := fmt.Sprint(prefix, d.random.IntN(3))
		if d.random.IntN(2) == 0 {
			name = fmt.Sprintf("%s%dx%d", prefix, d.number, d.random.IntN(3))
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (d *thingDefinition) count(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes[what]++
}

// rounds changes the definition for some rounds, and replaces it in most of them.
func (d *thingDefinition) rounds(n int) {
	for range n {
		for range 2 + d.random.IntN(5) {
			time.Sleep(time.Duration(d.random.IntN(60)) * time.Millisecond) // anywhere in the middle of writes
			d.change()
		}
		if d.random.IntN(3) > 0 {
			d.replace()
		}
	}
}

// checkServed checks that discovery says what the definition says, once all that is pending has been done.
func (d *thingDefinition) checkServed() {
	d.t.Helper()
	until(d.t, "discovery follows the definition", func() string {
		crd := d.now()
		for _, version := range []string{"v1", "v2"} {
			list := &metav1.APIResourceList{}
			d.api.must(d.t, "GET", "/apis/"+thingGroup+"/"+version, nil).decode(d.t, list)
			at := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == d.plural() })
			if at < 0 {
				return version + " is not there"
			}
			is := list.APIResources[at]
			if got, want := brieflyNamed(is.ShortNames, is.Categories, is.Namespaced), brieflyNamed(crd.Status.AcceptedNames.ShortNames, crd.Status.AcceptedNames.Categories, crd.Spec.Scope == apiextensionsv1.NamespaceScoped); got != want {
				return fmt.Sprintf("%s is %s, want %s", version, got, want)
			}
		}
		accepted := ptr.Deref(apihelpers.FindCRDCondition(crd, apiextensionsv1.NamesAccepted), apiextensionsv1.CustomResourceDefinitionCondition{})
		if accepted.Status == apiextensionsv1.ConditionTrue && brieflyNamed(crd.Spec.Names.ShortNames, nil, true) != brieflyNamed(crd.Status.AcceptedNames.ShortNames, nil, true) {
			return "names are accepted that are not the definition's"
		}
		return ""
	})
}

func brieflyNamed(short, categories []string, namespaced bool) string {
	return fmt.Sprintf("%s of %s, namespaced %v", strings.Join(short, ","), strings.Join(categories, ","), namespaced)
}
