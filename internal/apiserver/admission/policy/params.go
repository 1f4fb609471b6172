package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/cel-go/common/types/ref"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apiserver/admission/policy/evaluate"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

// ParamRef is the reference of a binding to parameters, with its selector parsed.
type ParamRef struct {
	*admissionregistrationv1.ParamRef
	selector    labels.Selector
	selectorErr error
}

// NewParamRef returns the reference; nil if there is none.
func NewParamRef(r *admissionregistrationv1.ParamRef) *ParamRef {
	if r == nil {
		return nil
	}
	p := &ParamRef{ParamRef: r}
	if r.Selector != nil {
		p.selector, p.selectorErr = metav1.LabelSelectorAsSelector(r.Selector)
	}
	return p
}

// Param is an object that parameterizes a policy. A nil Param is none: params is null then.
type Param struct {
	Namespace, Name string
	Value           ref.Val
}

// CELValue returns the value of the variable params.
func (p *Param) CELValue() ref.Val {
	if p == nil {
		return nil
	}
	return p.Value
}

// Params finds the parameters of one write. The same object is the same Param for all bindings.
type Params struct {
	reader objects.Reader
	custom func(schema.GroupVersionKind) (Lister, error)
	kinds  map[admissionregistrationv1.ParamKind]*paramKind
	last   *paramKind // that was asked for: all bindings of a policy have the same
}

// paramKind reads the parameters of one kind.
type paramKind struct {
	Lister
	of    admissionregistrationv1.ParamKind
	gvk   schema.GroupVersionKind
	found map[types.NamespacedName][]*Param // one; none for an object that does not exist
}

// NewParams returns the lookup of parameters for one write.
func (s *Source[E]) NewParams() *Params {
	return &Params{reader: s.Reader, custom: s.Options.Params}
}

// Known returns an error unless objects of the kind can be read; nil for no kind.
func (p *Params) Known(kind *admissionregistrationv1.ParamKind) error {
	if kind == nil {
		return nil
	}
	_, err := p.kind(*kind)
	return err
}

func (p *Params) kind(kind admissionregistrationv1.ParamKind) (*paramKind, error) {
	if p.last != nil && p.last.of == kind {
		return p.last, nil
	}
	if k := p.kinds[kind]; k != nil {
		p.last = k
		return k, nil
	}
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("failed to parse paramKind APIVersion: %w", err)
	}
	k := &paramKind{of: kind, gvk: gv.WithKind(kind.Kind), found: map[types.NamespacedName][]*Param{}}
	if info := loadBuiltIn().byKind[k.gvk]; info != nil && !info.Virtual {
		k.Lister = builtInLister{p.reader, info}
	} else if p.custom != nil {
		k.Lister, err = p.custom(k.gvk)
	}
	if k.Lister == nil || err != nil {
		return nil, fmt.Errorf("failed to find resource referenced by paramKind: '%v'", k.gvk)
	}
	if p.kinds == nil {
		p.kinds = map[admissionregistrationv1.ParamKind]*paramKind{}
	}
	p.kinds[kind], p.last = k, k
	return k, nil
}

// withoutParams is what a policy is evaluated with if it, or its binding, does not use parameters.
var withoutParams = []*Param{nil}

// paramTimeout bounds how long a parameter that the cache does not have is looked for in the store.
const paramTimeout = time.Second

// Collect returns the parameters that a binding refers to; one that is nil if the policy or the binding does not use parameters. No parameters and no
// error means that the binding does not apply.
func (p *Params) Collect(ctx context.Context, kind *admissionregistrationv1.ParamKind, r *ParamRef, namespace string) ([]*Param, error) {
	if kind == nil || r == nil {
		return withoutParams, nil
	}
	k, err := p.kind(*kind)
	if err != nil {
		return nil, err
	}
	if k.Namespaced() {
		if r.Namespace != "" {
			namespace = r.Namespace
		} else if namespace == "" {
			return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
		}
	} else if namespace = ""; r.Namespace != "" {
		return nil, errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	}
	var params []*Param
	switch {
	case r.Name != "" && r.Selector != nil:
		return nil, errors.New("paramRef.name and paramRef.selector are mutually exclusive")
	case r.Name != "":
		params, err = k.get(ctx, namespace, r.Name)
	case r.Selector != nil:
		params, err = k.list(namespace, r)
	default:
		err = errors.New("one of name or selector must be provided")
	}
	if err != nil {
		return nil, err
	}
	if len(params) == 0 && r.ParameterNotFoundAction != nil && *r.ParameterNotFoundAction == admissionregistrationv1.DenyAction {
		return nil, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	return params, nil
}

// get returns the object of a name; none if it does not exist. The slice is shared.
func (k *paramKind) get(ctx context.Context, namespace, name string) ([]*Param, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if found, known := k.found[key]; known {
		return found, nil
	}
	obj, err := k.Lister.Get(ctx, namespace, name)
	var params []*Param
	switch {
	case err == nil:
		params = []*Param{k.newParam(obj, key)}
	case !apierrors.IsNotFound(err):
		return nil, err
	}
	k.found[key] = params
	return params, nil
}

func (k *paramKind) list(namespace string, r *ParamRef) ([]*Param, error) {
	if r.selectorErr != nil {
		return nil, r.selectorErr
	}
	list, err := k.List(namespace, r.selector)
	if err != nil {
		return nil, err
	}
	params := make([]*Param, 0, len(list))
	for _, obj := range list {
		m, ok := obj.(metav1.Object)
		if !ok {
			return nil, fmt.Errorf("a parameter has no metadata: %T", obj)
		}
		key := types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}
		if k.found[key] == nil {
			k.found[key] = []*Param{k.newParam(obj, key)}
		}
		params = append(params, k.found[key]...)
	}
	return params, nil
}

func (k *paramKind) newParam(obj runtime.Object, key types.NamespacedName) *Param {
	return &Param{key.Namespace, key.Name, evaluate.Value(obj, k.gvk)}
}

// builtInLister reads a resource of the catalog, from the cache where it can.
type builtInLister struct {
	reader objects.Reader
	info   *catalog.Info
}

func (l builtInLister) Namespaced() bool { return l.info.Namespaced }

func (l builtInLister) Get(ctx context.Context, namespace, name string) (runtime.Object, error) {
	resource := l.info.Stored.GVR.GroupResource()
	obj := l.reader.Get(resource, namespace, name)
	if obj == nil {
		ctx, cancel := context.WithTimeout(ctx, paramTimeout)
		defer cancel()
		var err error
		if obj, err = l.reader.Fresh(ctx, resource, namespace, name); err != nil {
			return nil, err
		}
	}
	return l.info.FromStored(obj), nil
}

func (l builtInLister) List(namespace string, selector labels.Selector) ([]runtime.Object, error) {
	var found []runtime.Object
	for _, obj := range l.reader.List(l.info.Stored.GVR.GroupResource(), namespace) {
		if selector.Matches(labels.Set(obj.GetLabels())) {
			found = append(found, l.info.FromStored(obj))
		}
	}
	return found, nil
}
