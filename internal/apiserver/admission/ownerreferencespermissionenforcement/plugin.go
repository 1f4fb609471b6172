package ownerreferencespermissionenforcement

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/authz"
	"skiff/internal/catalog"
)

// Resource is a resource that is served.
type Resource struct {
	schema.GroupVersionResource
	Namespaced bool
}

// Mapper returns the resources that serve a kind; none if it is not served.
type Mapper func(schema.GroupVersionKind) []Resource

// New returns the plugin.
func New(a authz.Authorizer, m Mapper) admission.Plugin { return &plugin{a, m} }

type plugin struct {
	authorizer authz.Authorizer
	mapper     Mapper
}

var pods = corev1.Resource("pods")

func (*plugin) Name() string { return "OwnerReferencesPermissionEnforcement" }

// Handles leaves out the status of pods, as upstream does: it cannot change owner references.
func (*plugin) Handles(a *admission.Attributes) bool {
	return (a.Operation == admission.Create || a.Operation == admission.Update) && !(a.Subresource == "status" && a.Is(pods))
}

// Validate refuses owner references that the user may not set.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	refs, old := references(a.Object), references(a.Old)
	if apiequality.Semantic.DeepEqual(refs, old) {
		return nil
	}
	if a.Operation != admission.Create { // whoever creates an object might as well not have
		decision, reason, err := p.authorizer.Authorize(ctx, &authz.Attributes{User: a.User, Verb: "delete", Resource: true, Group: a.Info.GVR.Group, Version: a.Info.GVR.Version,
			Plural: a.Info.GVR.Resource, Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name})
		if decision != authz.Allow {
			return a.Forbidden(fmt.Errorf("cannot set an ownerRef on a resource you can't delete: %v, %v", reason, err))
		}
	}
	blocking := newlyBlocking(refs, old)
	if len(blocking) == 0 {
		return nil
	}
	anything := Resource{schema.GroupVersionResource{Group: "*", Version: "*", Resource: "*"}, false}
	if decision, _, _ := p.authorizer.Authorize(ctx, updateFinalizers(a, anything, "*")); decision == authz.Allow {
		return nil
	}
	for _, ref := range blocking {
		if err := p.checkOwner(ctx, a, ref); err != nil {
			return a.Forbidden(err)
		}
	}
	return nil
}

// checkOwner requires that the user may update the finalizers of an owner, in all resources that its kind may be of.
func (p *plugin) checkOwner(ctx context.Context, a *admission.Attributes, ref *metav1.OwnerReference) error {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	gvk := gv.WithKind(ref.Kind)
	var resources []Resource
	if err == nil {
		if resources = p.mapper(gvk); len(resources) == 0 {
			err = &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
		}
	}
	if err != nil {
		return fmt.Errorf("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %w", ref.APIVersion, ref.Kind, err)
	}
	for _, r := range resources {
		if decision, reason, err := p.authorizer.Authorize(ctx, updateFinalizers(a, r, ref.Name)); decision != authz.Allow {
			return fmt.Errorf("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %v, %v", reason, err)
		}
	}
	return nil
}

// updateFinalizers returns the attributes of a request of the user to update the finalizers of an owner. An owner in a namespace is in that of the object.
func updateFinalizers(a *admission.Attributes, of Resource, name string) *authz.Attributes {
	request := &authz.Attributes{User: a.User, Verb: "update", Resource: true, Group: of.Group, Version: of.Version, Plural: of.Resource, Subresource: "finalizers", Name: name}
	if of.Namespaced {
		request.Namespace = a.Namespace
	}
	return request
}

func references(obj catalog.Object) []metav1.OwnerReference {
	if obj == nil {
		return nil
	}
	return obj.GetOwnerReferences()
}

// newlyBlocking returns the references that block the deletion of their owner and did not before.
func newlyBlocking(refs, old []metav1.OwnerReference) (blocking []*metav1.OwnerReference) {
	for i := range refs {
		if !ptr.Deref(refs[i].BlockOwnerDeletion, false) {
			continue
		}
		blocked := false
		for j := range old { // of several with the same UID the last counts
			if old[j].UID == refs[i].UID {
				blocked = ptr.Deref(old[j].BlockOwnerDeletion, false)
			}
		}
		if !blocked {
			blocking = append(blocking, &refs[i])
		}
	}
	return blocking
}
