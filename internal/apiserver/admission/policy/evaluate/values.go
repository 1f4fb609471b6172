package evaluate

import (
	"context"
	"math"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/library"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/celauthorizer"
	"skiff/internal/apiserver/authz"
	"skiff/internal/catalog"
)

// Request makes the CEL values of a write, each when it is first needed. It may be used by one goroutine at a time.
type Request struct {
	a         *admission.Attributes
	namespace string // of the write, as upstream tells it: see match.Subject
	authorize authz.Authorizer

	user            user.Info
	cache           authorizer.UnconditionalAuthorizer
	authorizer      ref.Val
	requestResource ref.Val

	namespaceOf    *corev1.Namespace
	namespaceValue ref.Val

	versions map[*catalog.Info]*Version
	cost     int64 // of all expressions evaluated so far
}

// Cost returns what all expressions evaluated so far have cost.
func (r *Request) Cost() int64 { return r.cost }

// spend adds to the cost.
func (r *Request) spend(costs ...int64) {
	for _, cost := range costs {
		r.cost += min(cost, math.MaxInt64-r.cost)
	}
}

// NewRequest returns the values of a write in a namespace.
func NewRequest(a *admission.Attributes, namespace string, authorize authz.Authorizer) *Request {
	return &Request{a: a, namespace: namespace, authorize: authorize, versions: map[*catalog.Info]*Version{}}
}

// Version returns the values of the write in one version of its resource. It is to be called again after Changed. It fails if a custom object cannot be
// converted.
func (r *Request) Version(ctx context.Context, info *catalog.Info) (*Version, error) {
	v := r.versions[info]
	if v == nil {
		v = &Version{request: r, info: info}
		if err := v.convert(ctx, r.a.Old, &v.old); err != nil {
			return nil, err
		}
		r.versions[info] = v
	}
	if v.current == nil {
		if err := v.convert(ctx, r.a.Object, &v.current); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// Version has the values of a write in one version of its resource.
type Version struct {
	request *Request
	info    *catalog.Info

	current, old runtime.Object // the object of the write and the one before it, in the version; nil if there is none

	object, oldObject             ref.Val // read by reflection
	plainObject, plainOldObject   ref.Val // of maps and lists
	matched, requested            ref.Val // the variable request of validations and of match conditions
	objectKnown, plainObjectKnown bool
}

// Changed forgets the values of the object, which was changed.
func (r *Request) Changed() {
	for _, v := range r.versions {
		v.current, v.object, v.plainObject, v.objectKnown, v.plainObjectKnown = nil, nil, nil, false, false
	}
}

// Object returns the object of the write in the version; nil if it has none.
func (v *Version) Object() runtime.Object {
	if v.current == nil {
		return v.request.a.Connection
	}
	return v.current
}

// convert sets converted to an object of the write in the version.
func (v *Version) convert(ctx context.Context, obj catalog.Object, converted *runtime.Object) error {
	switch {
	case obj == nil:
		return nil
	case v.info == v.request.a.Info.Stored || !v.isResource(obj):
		*converted = obj
		return nil
	}
	made, err := v.info.From(ctx, obj)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	*converted = made
	return nil
}

// isResource reports whether the object of the write is of the resource, which that of a subresource need not be.
func (v *Version) isResource(obj catalog.Object) bool {
	return v.request.a.Subresource == "" || reflect.TypeOf(obj) == reflect.TypeOf(v.request.a.Info.Stored.New())
}

func (v *Version) load(plain bool) {
	known := &v.objectKnown
	object, old, value := &v.object, &v.oldObject, Value
	if plain {
		known, object, old, value = &v.plainObjectKnown, &v.plainObject, &v.plainOldObject, plainValue
	}
	if *known {
		return
	}
	*known = true
	*object = v.valueOf(v.Object(), value)
	if *old == nil {
		*old = v.valueOf(v.old, value)
	}
}

func (v *Version) valueOf(obj runtime.Object, value func(runtime.Object, schema.GroupVersionKind) ref.Val) ref.Val {
	if obj == nil {
		return types.NullValue
	}
	return value(obj, v.KindOf(obj))
}

// KindOf returns the kind of an object of the write in this version, which for a subresource may be another than that of the resource.
func (v *Version) KindOf(obj runtime.Object) schema.GroupVersionKind {
	if gvk := obj.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		return gvk
	}
	return SubresourceKind(v.info, v.request.a.Subresource)
}

// SubresourceKind returns the kind of the objects of a resource or of a subresource of it.
func SubresourceKind(info *catalog.Info, subresource string) schema.GroupVersionKind {
	switch subresource {
	case "scale":
		return schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
	case "eviction":
		return schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}
	case "binding":
		return corev1.SchemeGroupVersion.WithKind("Binding")
	case "token":
		return authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
	case "exec", "attach", "portforward", "proxy":
		if kind, ok := connectKinds[info.GVK.Kind+"/"+subresource]; ok {
			return corev1.SchemeGroupVersion.WithKind(kind)
		}
	}
	return info.GVK
}

var connectKinds = map[string]string{"Pod/exec": "PodExecOptions", "Pod/attach": "PodAttachOptions", "Pod/portforward": "PodPortForwardOptions",
	"Pod/proxy": "PodProxyOptions", "Service/proxy": "ServiceProxyOptions", "Node/proxy": "NodeProxyOptions"}

// Value returns an object as a CEL value that reads the object by reflection. It has the kind even if the object does not say it.
func Value(obj runtime.Object, gvk schema.GroupVersionKind) ref.Val {
	if r, ok := obj.(admission.Rooted); ok {
		root, err := r.Root()
		if err != nil {
			return types.WrapErr(err)
		}
		return types.DefaultTypeAdapter.NativeToValue(root)
	}
	if obj.GetObjectKind().GroupVersionKind().Empty() {
		pointer := reflect.ValueOf(obj)
		if pointer.Kind() != reflect.Pointer || pointer.Elem().Kind() != reflect.Struct {
			return types.NewErr("unsupported Go type for CEL: %T", obj)
		}
		shallow := reflect.New(pointer.Elem().Type()) // the object is shared: only the copy may say its kind
		shallow.Elem().Set(pointer.Elem())
		obj = shallow.Interface().(runtime.Object)
		obj.GetObjectKind().SetGroupVersionKind(gvk)
	}
	return common.SchemalessTypedToVal(obj)
}

// plainValue returns an object as a CEL value of maps and lists.
func plainValue(obj runtime.Object, gvk schema.GroupVersionKind) ref.Val {
	c, err := Content(obj, gvk)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.DefaultTypeAdapter.NativeToValue(c)
}

// Content returns an object as maps and lists. What is below the root may be the object's: it must not be changed.
func Content(obj runtime.Object, gvk schema.GroupVersionKind) (map[string]any, error) {
	if r, ok := obj.(admission.Rooted); ok {
		return r.Root()
	}
	c, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	c["apiVersion"], c["kind"] = gvk.GroupVersion().String(), gvk.Kind
	return c, nil
}

// requestValue returns the variable request. matched says whether its resource is the one that the policy matched, or the one that was requested.
func (v *Version) requestValue(matched bool) ref.Val {
	value := &v.requested
	if matched || v.info == v.request.a.Info {
		value = &v.matched
	}
	if *value == nil {
		*value = common.SchemalessTypedToVal(v.request.admissionRequest(v.info, matched))
	}
	return *value
}

func (r *Request) admissionRequest(info *catalog.Info, matched bool) *admissionv1.AdmissionRequest {
	a := r.a
	resource := a.Info.GVR
	if matched {
		resource = info.GVR
	}
	name := a.Name
	if name == "" && a.Object != nil { // a create has none in its path
		name = a.Object.GetName()
	}
	requestResource, requestKind := metav1.GroupVersionResource(a.Info.GVR), metav1.GroupVersionKind(SubresourceKind(a.Info, a.Subresource))
	dryRun := a.DryRun
	request := &admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind(SubresourceKind(info, a.Subresource)), Resource: metav1.GroupVersionResource(resource), SubResource: a.Subresource,
		RequestKind: &requestKind, RequestResource: &requestResource, RequestSubResource: a.Subresource,
		Name: name, Namespace: r.namespace, Operation: admissionv1.Operation(a.Operation), DryRun: &dryRun}
	if options := a.Options(); options != nil {
		request.Options.Object = options
	}
	if a.User != nil {
		request.UserInfo = authenticationv1.UserInfo{Username: a.User.Username, UID: a.User.UID, Groups: a.User.Groups, Extra: a.User.Extra}
		if request.UserInfo.Extra == nil {
			request.UserInfo.Extra = map[string]authenticationv1.ExtraValue{}
		}
	}
	return request
}

// SetNamespace sets the namespace that the variable namespaceObject has; nil for none.
func (r *Request) SetNamespace(n *corev1.Namespace) {
	if n != r.namespaceOf || r.namespaceValue == nil {
		r.namespaceOf, r.namespaceValue = n, namespaceValue(n)
	}
}

// namespaceValue returns a namespace with the parts that expressions may read.
func namespaceValue(n *corev1.Namespace) ref.Val {
	if n == nil {
		return types.NullValue
	}
	return common.SchemalessTypedToVal(&corev1.Namespace{Status: n.Status, Spec: n.Spec, ObjectMeta: metav1.ObjectMeta{
		Name: n.Name, GenerateName: n.GenerateName, Namespace: n.Namespace, UID: n.UID, ResourceVersion: n.ResourceVersion, Generation: n.Generation,
		CreationTimestamp: n.CreationTimestamp, DeletionTimestamp: n.DeletionTimestamp, DeletionGracePeriodSeconds: n.DeletionGracePeriodSeconds,
		Labels: n.Labels, Annotations: n.Annotations, Finalizers: n.Finalizers}})
}

func (r *Request) loadAuthorizer() {
	if r.authorizer != nil {
		return
	}
	r.user, r.cache = celauthorizer.UserInfo(r.a.User), celauthorizer.New(r.authorize)
	r.authorizer = library.NewAuthorizerVal(r.user, r.cache)
	r.requestResource = library.NewResourceAuthorizerVal(r.user, r.cache, resource{r})
}

// resource is the resource of the write, for the variable authorizer.requestResource.
type resource struct{ *Request }

func (r resource) GetName() string                          { return r.a.Name }
func (r resource) GetNamespace() string                     { return r.namespace }
func (r resource) GetResource() schema.GroupVersionResource { return r.a.Info.GVR }
func (r resource) GetSubresource() string                   { return r.a.Subresource }
