package policy

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/authz"
	"skiff/internal/catalog"
	"skiff/internal/catalog/all"
)

// Options hold what the plugins need besides the server's objects. Functions that are nil know nothing but the built-in kinds.
type Options struct {
	// Authorizer answers the expressions that ask what a user may do.
	Authorizer authz.Authorizer
	// Params returns a lister of the objects of a kind that is not built in, such as a custom resource, for the parameters of policies.
	Params func(schema.GroupVersionKind) (Lister, error)
	// Versions returns all infos that serve the same objects as a resource that is not built in, itself included.
	Versions func(*catalog.Info) []*catalog.Info
	// Types returns the schema by which objects of a kind that is not built in are merged; nil if the kind is unknown.
	Types func(schema.GroupVersionKind) managedfields.TypeConverter
	// Metrics is where the plugins register their metrics; nil registers none.
	Metrics prometheus.Registerer
}

// Lister reads the objects of one kind. Objects are shared and must not be changed.
type Lister interface {
	// Namespaced reports whether objects are in namespaces.
	Namespaced() bool
	// Get returns an object, or a NotFound error. It must not wait long: a request waits for it.
	Get(ctx context.Context, namespace, name string) (runtime.Object, error)
	// List returns the objects of a namespace, or of the cluster if the namespace is empty, that the selector selects.
	List(namespace string, selector labels.Selector) ([]runtime.Object, error)
}

// builtIn has the resources of the catalog, by kind and by what they store.
type builtIn struct {
	byKind   map[schema.GroupVersionKind]*catalog.Info
	versions map[*catalog.Info][]*catalog.Info
}

var loadBuiltIn = sync.OnceValue(func() *builtIn {
	b := &builtIn{byKind: map[schema.GroupVersionKind]*catalog.Info{}, versions: map[*catalog.Info][]*catalog.Info{}}
	stored := map[schema.GroupVersionResource][]*catalog.Info{}
	for _, info := range all.Resources() {
		if _, known := b.byKind[info.GVK]; !known {
			b.byKind[info.GVK] = info
		}
		stored[info.Stored.GVR] = append(stored[info.Stored.GVR], info)
	}
	for _, versions := range stored {
		for _, info := range versions {
			b.versions[info] = versions
		}
	}
	return b
})

// Equivalent returns the other versions and groups in which the resource of a write is served.
func (o *Options) Equivalent(a *admission.Attributes) []*catalog.Info {
	if a.Related != nil {
		return a.Related
	}
	info := a.Info
	versions := loadBuiltIn().versions[info]
	if versions == nil {
		versions = versionsOf(info)
	}
	if versions == nil && o.Versions != nil {
		versions = o.Versions(info)
	}
	if len(versions) < 2 {
		return nil
	}
	var others []*catalog.Info
	for _, v := range versions {
		if v.GVR != info.GVR {
			others = append(others, v)
		}
	}
	return others
}

// versionsOf returns the versions of a built-in resource whose declaration was made again.
func versionsOf(info *catalog.Info) []*catalog.Info {
	known := loadBuiltIn().byKind[info.GVK]
	if known == nil || known.GVR != info.GVR {
		return nil
	}
	return loadBuiltIn().versions[known]
}

var reviews = map[schema.GroupResource]bool{
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:       true,
	{Group: "authentication.k8s.io", Resource: "tokenreviews"}:             true,
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:  true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:   true,
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:      true,
}

var policies = map[string]bool{"validatingadmissionpolicies": true, "validatingadmissionpolicybindings": true,
	"mutatingadmissionpolicies": true, "mutatingadmissionpolicybindings": true}

// exempt reports whether policies never apply to a resource: reviews, without which nobody could use the cluster, and policies, which could lock everybody out.
func exempt(a *admission.Attributes) bool {
	gr := a.Info.GVR.GroupResource()
	return reviews[gr] || gr.Group == "admissionregistration.k8s.io" && policies[gr.Resource]
}
