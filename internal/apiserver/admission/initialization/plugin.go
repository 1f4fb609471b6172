package initialization

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
	"skiff/internal/catalog/admissionregistration/v1alpha1"
	"skiff/internal/catalog/initializers"
)

// verb is what one must be allowed to do with a resource to initialize its objects.
const verb = "initialize"

const group = "admissionregistration.k8s.io"

var (
	configurations = schema.GroupResource{Group: group, Resource: "initializerconfigurations"}
	pods           = corev1.Resource("pods")
)

// New returns the plugin.
func New(r objects.Reader, a authz.Authorizer) admission.Plugin {
	p := &plugin{authorizer: a, known: map[string]*v1alpha1.InitializerConfiguration{}}
	r.Follow(configurations, p.changed)
	return p
}

type plugin struct {
	authorizer authz.Authorizer
	// all has the initializers of all configurations, in the order in which they act; nil if there are none.
	all atomic.Pointer[[]v1alpha1.Initializer]

	mu    sync.Mutex
	known map[string]*v1alpha1.InitializerConfiguration
}

// changed keeps the initializers of all configurations, sorted by the names of these.
func (p *plugin) changed(before, after catalog.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := after.(*v1alpha1.InitializerConfiguration); ok {
		p.known[c.Name] = c
	} else {
		delete(p.known, before.GetName())
	}
	var all []v1alpha1.Initializer
	for _, name := range slices.Sorted(maps.Keys(p.known)) {
		all = append(all, p.known[name].Initializers...)
	}
	if len(all) == 0 {
		p.all.Store(nil)
		return
	}
	p.all.Store(&all)
}

func (*plugin) Name() string { return admission.InitializersPlugin }

// Handles reports whether an object is created that may have to wait, or one is written that waits.
func (p *plugin) Handles(a *admission.Attributes) bool {
	if a.Subresource != "" || a.Info.Virtual {
		return false
	}
	switch a.Operation {
	case admission.Create:
		return a.SentInitializers || p.all.Load() != nil
	case admission.Update:
		return a.OldInitializers != nil || a.Initializers != nil
	}
	return false
}

// Admit sets the initializers of a new object, and checks who changes an object that waits for some.
func (p *plugin) Admit(ctx context.Context, a *admission.Attributes) error {
	if a.Operation == admission.Update {
		return p.admitUpdate(ctx, a)
	}
	if a.SentInitializers {
		return p.admitSent(ctx, a)
	}
	all := p.all.Load()
	if all == nil || exempt(a) {
		return nil
	}
	names := matching(*all, a.Info.GVR)
	if len(names) > initializers.MaxPending {
		return a.Forbidden(fmt.Errorf("%d initializers care about %s, more than %d", len(names), a.Info.GVR.GroupResource(), initializers.MaxPending))
	}
	a.Initializers = initializers.Of(names...)
	return nil
}

// admitSent admits a new object whose client says itself what it waits for.
func (p *plugin) admitSent(ctx context.Context, a *admission.Attributes) error {
	if err := p.authorize(ctx, a, "create with initializers denied"); err != nil {
		return err
	}
	errs := a.Initializers.Validate()
	if a.Initializers.Failed() {
		errs = append(errs, field.Forbidden(initializers.Path().Child("result"), "a new object cannot have been refused"))
	}
	return invalid(a, errs)
}

// admitUpdate admits a change of an object that waits, or would wait, for initializers.
func (p *plugin) admitUpdate(ctx context.Context, a *admission.Attributes) error {
	if err := invalid(a, a.Initializers.ValidateUpdate(a.OldInitializers)); err != nil {
		return err
	}
	return p.authorize(ctx, a, "update to uninitialized resource denied")
}

func invalid(a *admission.Attributes, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(a.Info.GVK.GroupKind(), a.Subject(), errs)
}

// authorize refuses a user who may not initialize the resource.
func (p *plugin) authorize(ctx context.Context, a *admission.Attributes, denied string) error {
	gvr := a.Info.GVR
	decision, reason, err := p.authorizer.Authorize(ctx, &authz.Attributes{User: a.User, Verb: verb, Resource: true, Group: gvr.Group, Version: gvr.Version, Plural: gvr.Resource,
		Namespace: a.Namespace, Name: a.Name})
	switch {
	case decision == authz.Allow:
		return nil
	case err != nil:
		return err
	}
	return a.Forbidden(fmt.Errorf("%s: %s", denied, reason))
}

// exempt reports whether an object waits for nothing.
func exempt(a *admission.Attributes) bool {
	if a.Info.GVR.Group == group {
		return true
	}
	_, mirror := a.Object.GetAnnotations()[corev1.MirrorPodAnnotationKey]
	return mirror && a.Is(pods)
}

// matching returns the names of the initializers that care about a resource, in order.
func matching(all []v1alpha1.Initializer, gvr schema.GroupVersionResource) []string {
	var names []string
	for i := range all {
		if slices.ContainsFunc(all[i].Rules, func(r v1alpha1.Rule) bool {
			return has(r.APIGroups, gvr.Group) && has(r.APIVersions, gvr.Version) && has(r.Resources, gvr.Resource)
		}) {
			names = append(names, all[i].Name)
		}
	}
	return names
}

func has(list []string, value string) bool {
	return slices.Contains(list, value) || slices.Contains(list, "*")
}
