package validating

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"skiff/internal/apiserver/admission/policy"
	"skiff/internal/apiserver/admission/policy/evaluate"
)

// outcome is what a policy makes of a write with a parameter.
type outcome struct {
	decisions   []decision   // one for each validation, or one error
	annotations []annotation // one for each audit annotation
	unmatched   bool         // the match conditions do not hold
}

// decision is what became of a validation.
type decision struct {
	denied  bool
	failed  bool // the expression could not be evaluated
	message string
	reason  metav1.StatusReason
	elapsed time.Duration
}

// annotation is what became of an audit annotation. Without a value there is nothing to record.
type annotation struct {
	key, value string
	err        string
	elapsed    time.Duration
}

// evaluate evaluates the policy on a version of a write.
func (c *compiled) evaluate(ctx context.Context, v *evaluate.Version, param *policy.Param, ignore bool) outcome {
	failed := func(err error) outcome {
		return outcome{decisions: []decision{{denied: !ignore, failed: true, message: err.Error()}}}
	}
	params := param.CELValue()
	applies, err := c.conditions.Match(ctx, v, c.variables, params, ignore)
	if err != nil {
		return failed(err)
	}
	if !applies {
		return outcome{unmatched: true}
	}
	inputs := evaluate.Inputs{Params: params, Authorizer: true, Namespace: true, Matched: true}
	results, budget, err := v.Run(ctx, c.validations, c.variables, inputs, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return failed(err)
	}
	inputs.Authorizer = false
	messages, _, messageErr := v.Run(ctx, c.messages, c.variables, inputs, budget)
	inputs.Authorizer = true
	annotations, _, err := v.Run(ctx, c.annotations, c.variables, inputs, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return failed(err)
	}
	var o outcome
	for i := range results {
		var message evaluate.Outcome
		if messages != nil {
			message = messages[i]
		}
		o.decisions = append(o.decisions, c.decide(i, &results[i], &message, messageErr, ignore))
	}
	for i := range annotations {
		o.annotations = append(o.annotations, c.annotate(i, &annotations[i], ignore))
	}
	return o
}

func (c *compiled) decide(i int, result, message *evaluate.Outcome, messageErr error, ignore bool) decision {
	v := &c.spec.Validations[i]
	switch {
	case result.Err != nil:
		return decision{denied: !ignore, failed: true, message: result.Err.Error(), elapsed: result.Elapsed}
	case errors.Is(messageErr, apiservercel.ErrInternal) || errors.Is(messageErr, apiservercel.ErrOutOfBudget):
		return decision{denied: !ignore, failed: true, message: fmt.Sprintf("failed messageExpression: %s", messageErr), elapsed: result.Elapsed}
	case result.Value == types.True:
		return decision{elapsed: result.Elapsed}
	}
	d := decision{denied: true, message: usableMessage(message), reason: metav1.StatusReasonInvalid, elapsed: result.Elapsed}
	if v.Reason != nil {
		d.reason = *v.Reason
	}
	if d.message == "" {
		d.message = strings.TrimSpace(v.Message)
	}
	if d.message == "" {
		d.message = "failed expression: " + strings.TrimSpace(v.Expression)
	}
	return d
}

// usableMessage returns what a message expression evaluated to; empty if it failed or is too long or has several lines.
func usableMessage(o *evaluate.Outcome) string {
	if o.Err != nil || o.Value == nil {
		return ""
	}
	text, _ := o.Value.Value().(string)
	text = strings.TrimSpace(text)
	if len(text) > celconfig.MaxEvaluatedMessageExpressionSizeBytes || strings.Contains(text, "\n") {
		return ""
	}
	return text
}

func (c *compiled) annotate(i int, result *evaluate.Outcome, ignore bool) annotation {
	a := annotation{key: c.spec.AuditAnnotations[i].Key, elapsed: result.Elapsed}
	switch {
	case result.Err != nil && ignore:
	case result.Err != nil:
		a.err = result.Err.Error()
	case result.Value.Type() == types.StringType:
		text, _ := result.Value.Value().(string)
		a.value = strings.TrimSpace(text)
	case result.Value.Type() != types.NullType:
		a.err = fmt.Sprintf("valueExpression '%v' resulted in unsupported return type: %v. Return type must be either string or null.",
			c.spec.AuditAnnotations[i].ValueExpression, result.Value.Type())
	}
	return a
}
