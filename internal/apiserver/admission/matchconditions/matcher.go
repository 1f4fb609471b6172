package matchconditions

import (
	"context"
	"fmt"
	"math"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/library"

	"skiff/internal/apiserver/admission/celauthorizer"
	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/catalog/expressions"
)

// Matcher has the compiled match conditions of one webhook or policy. It may be used by several goroutines.
type Matcher struct {
	conditions []condition
	authorizer authz.Authorizer
}

type condition struct {
	name, expression string
	program          cel.Program
	err              error // why the expression cannot be evaluated
}

// Request is what conditions are evaluated on.
type Request struct {
	// Object and OldObject have their kind and apiVersion set; nil if there is none.
	Object, OldObject runtime.Object
	Params            runtime.Object
	// Review is the request as a webhook would see it, without the objects.
	Review *admissionv1.AdmissionRequest
	User   *authn.User
}

// Compile compiles stored conditions. Those that cannot be compiled fail when they are evaluated. The authorizer is that of the variable authorizer.
func Compile(conditions []admissionregistrationv1.MatchCondition, hasParams bool, authorizer authz.Authorizer) *Matcher {
	m := &Matcher{authorizer: authorizer}
	for _, c := range conditions {
		compiled := condition{name: c.Name, expression: c.Expression}
		made := expressions.NewCompiler(false).Compile(c.Expression, expressions.Condition, expressions.Scope{Params: hasParams, Authorizer: true}, expressions.Stored)
		if made.Error != nil {
			compiled.err = &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: fmt.Sprintf("compilation error: %v", made.Error), Cause: made.Error}
		}
		compiled.program = made.Program
		m.conditions = append(m.conditions, compiled)
	}
	return m
}

// Match reports whether all conditions are true. If one is false, the request does not match, whatever happens to the others, and failing is its name.
// If none is false but some could not be evaluated, it returns their errors: the failurePolicy decides.
func (m *Matcher) Match(ctx context.Context, r *Request) (matches bool, failing string, err error) {
	variables, budget := m.activation(r), int64(celconfig.RuntimeCELCostBudgetMatchConditions)
	results := make([]ref.Val, len(m.conditions))
	var errs []error
	for i := range m.conditions {
		var failure error
		if results[i], failure, err = m.conditions[i].evaluate(ctx, variables, &budget); err != nil {
			return false, "", err
		}
		if failure != nil {
			errs = append(errs, failure)
		}
	}
	for i, result := range results {
		if result == types.False {
			return false, m.conditions[i].name, nil
		}
	}
	if len(errs) > 0 {
		return false, "", utilerrors.NewAggregate(errs)
	}
	return true, "", nil
}

// evaluate returns the value of a condition, or why it has none. It returns err if no condition after this one can be evaluated: the budget, which it
// lowers by the cost, is spent.
func (c *condition) evaluate(ctx context.Context, variables interpreter.Activation, budget *int64) (value ref.Val, failure, err error) {
	if c.err != nil {
		return nil, c.err, nil
	}
	value, details, problem := c.program.ContextEval(ctx, variables)
	if details == nil || details.ActualCost() == nil {
		return nil, nil, &apiservercel.Error{Type: apiservercel.ErrorTypeInternal,
			Detail: fmt.Sprintf("runtime cost could not be calculated for expression: %v, no further expression will be run", c.expression)}
	}
	if cost := *details.ActualCost(); cost > math.MaxInt64 || int64(cost) > *budget {
		return nil, nil, &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Cause: apiservercel.ErrOutOfBudget,
			Detail: "validation failed due to running out of cost budget, no further validation rules will be run"}
	} else {
		*budget -= int64(cost)
	}
	if problem != nil {
		return nil, &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: fmt.Sprintf("expression '%v' resulted in error: %v", c.expression, problem)}, nil
	}
	return value, nil, nil
}

// activation has the values of the variables for one request.
type activation map[string]any

// ResolveName implements interpreter.Activation.
func (a activation) ResolveName(name string) (any, bool) {
	value, ok := a[name]
	return value, ok
}

// Parent implements interpreter.Activation.
func (activation) Parent() interpreter.Activation { return nil }

func (m *Matcher) activation(r *Request) activation {
	a := activation{expressions.Object: valueOf(r.Object), expressions.OldObject: valueOf(r.OldObject), expressions.Params: valueOf(r.Params),
		expressions.Request: common.SchemalessTypedToVal(r.Review), expressions.NamespaceObject: common.SchemalessTypedToVal((*corev1.Namespace)(nil))}
	if m.authorizer != nil {
		user, adapted := celauthorizer.UserInfo(r.User), celauthorizer.New(m.authorizer)
		a[expressions.Authorizer] = library.NewAuthorizerVal(user, adapted)
		a[expressions.RequestResource] = library.NewResourceAuthorizerVal(user, adapted, requestResource{r.Review})
	}
	return a
}

// rooted is implemented by objects that have no Go type, those of custom resources: see admission.Rooted.
type rooted interface {
	runtime.Object
	// Root returns the object with apiVersion, kind and metadata. It must not be changed.
	Root() (map[string]any, error)
}

// valueOf returns an object as CEL sees it. One that has no Go type, a custom resource, is a map.
func valueOf(obj runtime.Object) any {
	switch obj := obj.(type) {
	case nil:
		return types.NullValue
	case rooted:
		root, err := obj.Root()
		if err != nil {
			return types.WrapErr(err)
		}
		return types.DefaultTypeAdapter.NativeToValue(root)
	default:
		return common.SchemalessTypedToVal(obj)
	}
}

// requestResource is the resource that authorizer.requestResource asks about.
type requestResource struct{ *admissionv1.AdmissionRequest }

func (r requestResource) GetName() string      { return r.Name }
func (r requestResource) GetNamespace() string { return r.Namespace }
func (r requestResource) GetResource() schema.GroupVersionResource {
	return schema.GroupVersionResource(*r.RequestResource)
}
func (r requestResource) GetSubresource() string { return r.RequestSubResource }
