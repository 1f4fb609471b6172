package evaluate

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"skiff/internal/catalog/expressions"
)

// Outcome is what an expression evaluated to, or the error that it failed with. Both are nil if there is no expression.
type Outcome struct {
	Value   ref.Val
	Err     error
	Elapsed time.Duration
}

// Inputs select what expressions see of a write.
type Inputs struct {
	Params     ref.Val // nil: null
	Authorizer bool
	Namespace  bool // whether namespaceObject is set
	Matched    bool // whether request.resource is the resource that the policy matched
	Plain      bool // whether objects are maps and lists, from which a mutation can be built
}

// Run evaluates expressions in order, with variables evaluated at most once for all of them, and returns what is left of the budget. An error means that
// the budget is used up: the outcomes are incomplete.
func (v *Version) Run(ctx context.Context, list []expressions.Compiled, variables *VariableSet, in Inputs, budget int64) ([]Outcome, int64, error) {
	if len(list) == 0 {
		return nil, budget, nil
	}
	a := v.activation(ctx, variables, in)
	outcomes := make([]Outcome, len(list))
	for i := range list {
		c := &list[i]
		if c.Program == nil && c.Error == nil {
			continue
		}
		var err error
		if outcomes[i], budget, err = a.evaluate(ctx, c, budget); err != nil {
			return nil, -1, err
		}
	}
	return outcomes, budget, nil
}

func (a *activation) evaluate(ctx context.Context, c *expressions.Compiled, budget int64) (Outcome, int64, error) {
	if c.Error != nil {
		return Outcome{Err: &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: fmt.Sprintf("compilation error: %v", c.Error), Cause: c.Error}}, budget, nil
	}
	start := time.Now()
	value, details, err := c.Eval(ctx, a)
	elapsed := time.Since(start)
	spent, ok := cost(details)
	a.version.request.spend(a.spent, spent)
	switch {
	case a.spent > budget: // by variables
		return Outcome{}, -1, outOfBudget()
	case details == nil:
		return Outcome{}, -1, &apiservercel.Error{Type: apiservercel.ErrorTypeInternal, Detail: uncalculated(c)}
	case !ok:
		return Outcome{}, -1, &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: uncalculated(c), Cause: apiservercel.ErrOutOfBudget}
	case spent > budget-a.spent:
		return Outcome{}, -1, outOfBudget()
	}
	budget -= a.spent + spent
	a.spent = 0
	if err != nil {
		err = &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: fmt.Sprintf("expression '%v' resulted in error: %v", c.Expression, err)}
		return Outcome{Err: err, Elapsed: elapsed}, budget, nil
	}
	return Outcome{Value: value, Elapsed: elapsed}, budget, nil
}

func uncalculated(c *expressions.Compiled) string {
	return fmt.Sprintf("runtime cost could not be calculated for expression: %v, no further expression will be run", c.Expression)
}

func outOfBudget() error {
	return &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Cause: apiservercel.ErrOutOfBudget,
		Detail: "validation failed due to running out of cost budget, no further validation rules will be run"}
}

// cost returns what an evaluation cost; ok is false if that is not known.
func cost(details *cel.EvalDetails) (spent int64, ok bool) {
	if details == nil || details.ActualCost() == nil {
		return 0, false
	}
	return int64(min(*details.ActualCost(), math.MaxInt64)), true
}

// activation resolves the variables of expressions.
type activation struct {
	version   *Version
	in        Inputs
	variables variables
	spent     int64 // by variables since the last expression ended
}

func (v *Version) activation(ctx context.Context, set *VariableSet, in Inputs) *activation {
	v.load(in.Plain)
	a := &activation{version: v, in: in}
	a.variables = variables{set: set, activation: a, ctx: ctx}
	return a
}

// ResolveName implements interpreter.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	v := a.version
	switch name {
	case expressions.Object:
		if a.in.Plain {
			return v.plainObject, true
		}
		return v.object, true
	case expressions.OldObject:
		if a.in.Plain {
			return v.plainOldObject, true
		}
		return v.oldObject, true
	case expressions.Params:
		if a.in.Params == nil {
			return nil, true
		}
		return a.in.Params, true
	case expressions.Request:
		return v.requestValue(a.in.Matched), true
	case expressions.NamespaceObject:
		if !a.in.Namespace || v.request.namespaceValue == nil {
			return nil, true
		}
		return v.request.namespaceValue, true
	case expressions.Authorizer, expressions.RequestResource:
		if !a.in.Authorizer {
			return nil, false
		}
		v.request.loadAuthorizer()
		if name == expressions.Authorizer {
			return v.request.authorizer, true
		}
		return v.request.requestResource, true
	case expressions.Variables:
		return &a.variables, true
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (a *activation) Parent() interpreter.Activation { return nil }
