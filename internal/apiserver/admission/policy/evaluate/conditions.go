package evaluate

import (
	"context"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"skiff/internal/catalog/expressions"
)

// CompileVariables compiles the variables of a policy in order.
func CompileVariables(c *expressions.Compiler, list []admissionregistrationv1.Variable, s expressions.Scope) *VariableSet {
	if len(list) == 0 {
		return nil
	}
	set := &VariableSet{}
	for _, v := range list {
		set.Add(v.Name, c.CompileVariable(v.Name, v.Expression, s, expressions.Stored))
	}
	return set
}

// Conditions are compiled match conditions.
type Conditions []expressions.Compiled

// CompileConditions compiles match conditions.
func CompileConditions(c *expressions.Compiler, list []admissionregistrationv1.MatchCondition, s expressions.Scope) Conditions {
	var conditions Conditions
	for _, m := range list {
		conditions = append(conditions, c.Compile(m.Expression, expressions.Condition, s, expressions.Stored))
	}
	return conditions
}

// Match reports whether all conditions hold. One that does not hold decides, whatever the others are. ignore says what becomes of errors: the conditions do
// not hold, or an error with all of them is returned.
func (l Conditions) Match(ctx context.Context, v *Version, variables *VariableSet, params ref.Val, ignore bool) (bool, error) {
	if len(l) == 0 {
		return true, nil
	}
	outcomes, _, err := v.Run(ctx, l, variables, Inputs{Params: params, Authorizer: true}, celconfig.RuntimeCELCostBudgetMatchConditions)
	var errs []error
	if err != nil {
		errs = append(errs, err)
	}
	for i := range outcomes {
		if outcomes[i].Err != nil {
			errs = append(errs, outcomes[i].Err)
		} else if outcomes[i].Value == types.False {
			return false, nil
		}
	}
	switch {
	case len(errs) == 0:
		return true, nil
	case ignore:
		return false, nil
	case err != nil:
		return false, err
	}
	return false, utilerrors.NewAggregate(errs)
}
