package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/webhook/review"
	"skiff/internal/apiserver/codec"
	"skiff/internal/catalog"
)

// request is a write or connection as webhooks see it.
type request struct {
	*admission.Attributes
	kind            schema.GroupVersionKind
	ownKind         bool // whether the object is of the kind of the resource, and not a Scale, Eviction or the like
	namespace, name string
	options         runtime.Object
	optionsJSON     []byte
	forms           map[*catalog.Info]*form
}

// form is the request in the version of one of the resources that serve the object.
type form struct {
	info        *catalog.Info
	kind        schema.GroupVersionKind
	object, old runtime.Object // without kind; nil if there is none
	oldJSON     []byte

	// The following are made when first needed.
	review                 *review.Request
	selfObject, selfOld    runtime.Object // with kind
	admission              *admissionv1.AdmissionRequest
	objectMade, reviewMade bool
}

func newRequest(a *admission.Attributes) (*request, error) {
	r := &request{Attributes: a, namespace: namespaceOf(a), name: nameOf(a), forms: map[*catalog.Info]*form{}}
	r.kind, r.ownKind = kindOf(a)
	if r.options = a.Options(); r.options == nil {
		return r, nil
	}
	var err error
	r.optionsJSON, err = json.Marshal(r.options)
	return r, err
}

// kindOf returns the kind of the object of a request, and whether that is the kind of the resource.
func kindOf(a *admission.Attributes) (schema.GroupVersionKind, bool) {
	obj := objectOf(a)
	if obj == nil && a.Old != nil {
		obj = a.Old
	}
	if obj == nil || a.Subresource == "" || reflect.TypeOf(obj) == reflect.TypeOf(a.Info.Stored.New()) {
		return a.Info.GVK, a.Connection == nil
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil || len(kinds) == 0 {
		return a.Info.GVK, false
	}
	return kinds[0], false
}

// objectOf returns the object of a request: of a connection its options. It returns an untyped nil if there is none.
func objectOf(a *admission.Attributes) runtime.Object {
	switch {
	case a.Connection != nil:
		return a.Connection
	case a.Object != nil:
		return a.Object
	}
	return nil
}

// namespaceOf returns the namespace of a request; of a namespace its name.
func namespaceOf(a *admission.Attributes) string {
	if isNamespace(a) {
		return nameOf(a)
	}
	return a.Namespace
}

func isNamespace(a *admission.Attributes) bool {
	return a.Info.GVR.Resource == "namespaces" && a.Info.GVR.Group == ""
}

// nameOf returns the name of the object of a request; empty if the server generates it.
func nameOf(a *admission.Attributes) string {
	if a.Name == "" && a.Object != nil && a.Object.GetGenerateName() == "" {
		return a.Object.GetName()
	}
	return a.Name
}

// form returns the request in the version of a resource. It fails if a custom object cannot be converted.
func (r *request) form(ctx context.Context, info *catalog.Info) (*form, error) {
	f := r.forms[info]
	if f == nil {
		f = &form{info: info, kind: r.kind}
		if r.ownKind {
			f.kind = info.GVK
		}
		if r.Old != nil {
			f.old = r.Old
			if r.ownKind {
				old, err := info.From(ctx, r.Old)
				if err != nil {
					return nil, apierrors.NewInternalError(err)
				}
				f.old = old
			}
		}
		r.forms[info] = f
	}
	if !f.objectMade {
		object := objectOf(r.Attributes)
		if r.ownKind && object != nil {
			var err error
			if object, err = info.From(ctx, r.Object); err != nil {
				return nil, apierrors.NewInternalError(err)
			}
		}
		f.object, f.objectMade = object, true
	}
	return f, nil
}

// changed forgets what was made of the object: it has changed.
func (r *request) changed() {
	for _, f := range r.forms {
		f.object, f.objectMade, f.selfObject, f.review, f.reviewMade = nil, false, nil, nil, false
	}
}

// message returns the review of the request in a form.
func (r *request) message(f *form) (*review.Request, error) {
	if f.reviewMade {
		return f.review, nil
	}
	object, err := f.objectJSON()
	if err == nil && object != nil {
		object, err = codec.WithInitializers(object, r.Initializers)
	}
	if err != nil {
		return nil, err
	}
	if f.oldJSON == nil && f.old != nil {
		if f.oldJSON, err = encode(f.old, f.kind); err == nil {
			f.oldJSON, err = codec.WithInitializers(f.oldJSON, r.OldInitializers)
		}
		if err != nil {
			return nil, err
		}
	}
	if f.review, err = review.New(r.describe(f), object, f.oldJSON, r.optionsJSON); err != nil {
		return nil, err
	}
	f.reviewMade = true
	return f.review, nil
}

// objectJSON returns the object as JSON with its kind; nil if there is none.
func (f *form) objectJSON() ([]byte, error) {
	if f.object == nil {
		return nil, nil
	}
	return encode(f.object, f.kind)
}

func encode(obj runtime.Object, kind schema.GroupVersionKind) ([]byte, error) {
	b, err := codec.Single(obj, kind, codec.Accepted{})
	return bytes.TrimRight(b, "\n"), err
}

// describe returns the request in a form without the objects.
func (r *request) describe(f *form) *admissionv1.AdmissionRequest {
	if f.admission != nil {
		return f.admission
	}
	requestResource, requestKind := metav1.GroupVersionResource(r.Info.GVR), metav1.GroupVersionKind(r.kind)
	dryRun := r.DryRun
	f.admission = &admissionv1.AdmissionRequest{Kind: metav1.GroupVersionKind(f.kind), Resource: metav1.GroupVersionResource(f.info.GVR), SubResource: r.Subresource,
		RequestKind: &requestKind, RequestResource: &requestResource, RequestSubResource: r.Subresource, Name: r.name, Namespace: r.namespace,
		Operation: admissionv1.Operation(r.Operation), DryRun: &dryRun}
	if r.User != nil {
		f.admission.UserInfo = *r.User
	}
	return f.admission
}

// withKind returns the object and the old object of a form with their kind, for match conditions.
func (f *form) withKind() (object, old runtime.Object) {
	if f.selfObject == nil && f.object != nil {
		f.selfObject = withKind(f.object, f.kind)
	}
	if f.selfOld == nil && f.old != nil {
		f.selfOld = withKind(f.old, f.kind)
	}
	return f.selfObject, f.selfOld
}

// withKind returns a shallow copy of an object that has its kind set. A custom object has it already.
func withKind(obj runtime.Object, kind schema.GroupVersionKind) runtime.Object {
	if _, ok := obj.(admission.Rooted); ok {
		return obj
	}
	v := reflect.New(reflect.TypeOf(obj).Elem())
	v.Elem().Set(reflect.ValueOf(obj).Elem())
	copied := v.Interface().(runtime.Object)
	copied.GetObjectKind().SetGroupVersionKind(kind)
	return copied
}

var errTimeout = apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
