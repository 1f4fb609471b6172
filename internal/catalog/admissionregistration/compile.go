package admissionregistration

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/expressions"
)

// expressionChecker compiles the expressions of one policy in the order in which they are validated: later ones see the variables before them.
type expressionChecker struct {
	compiler *expressions.Compiler
	params   bool
	known    knownExpressions
}

// knownExpressions are those of the old version of a policy. They may use what a rollback would not understand: they were accepted.
type knownExpressions struct{ conditions, validations, messages, annotations, configurations sets.Set[string] }

func newChecker(composed, params bool, known knownExpressions) *expressionChecker {
	return &expressionChecker{expressions.NewCompiler(composed), params, known}
}

func knownOfValidating(p *admissionregistrationv1.ValidatingAdmissionPolicy) knownExpressions {
	known := knownExpressions{conditions: conditionsOf(p.Spec.MatchConditions), validations: sets.New[string](), messages: sets.New[string](), annotations: sets.New[string]()}
	for _, v := range p.Spec.Validations {
		known.validations.Insert(v.Expression)
		known.messages.Insert(v.MessageExpression)
	}
	for _, a := range p.Spec.AuditAnnotations {
		known.annotations.Insert(a.ValueExpression)
	}
	return known
}

// knownOfMutating leaves out JSON patches: upstream looks them up among the apply configurations.
func knownOfMutating(p *admissionregistrationv1.MutatingAdmissionPolicy) knownExpressions {
	known := knownExpressions{conditions: conditionsOf(p.Spec.MatchConditions), configurations: sets.New[string]()}
	for _, m := range p.Spec.Mutations {
		if m.ApplyConfiguration != nil {
			known.configurations.Insert(m.ApplyConfiguration.Expression)
		}
	}
	return known
}

func conditionsOf(list []admissionregistrationv1.MatchCondition) sets.Set[string] {
	known := sets.New[string]()
	for _, c := range list {
		known.Insert(c.Expression)
	}
	return known
}

func mode(known sets.Set[string], expression string) expressions.Mode {
	if known.Has(expression) {
		return expressions.Stored
	}
	return expressions.New
}

// condition compiles a match condition, which does not see the variables of the policy.
func (k *expressionChecker) condition(p *check.Part, expression string) {
	compiled := expressions.NewCompiler(false).Compile(expression, expressions.Condition, expressions.Scope{Params: k.params, Authorizer: true}, mode(k.known.conditions, expression))
	addCompileError(p, "expression", compiled.Expression, compiled.Error)
}

func (k *expressionChecker) variable(p *check.Part, v *admissionregistrationv1.Variable) {
	compiled := k.compiler.CompileVariable(v.Name, v.Expression, expressions.Scope{Params: k.params, Authorizer: true}, mode(k.known.validations, v.Expression))
	addCompileError(p, "expression", compiled.Expression, compiled.Error)
}

func (k *expressionChecker) validation(p *check.Part, expression string) {
	compiled := k.compiler.Compile(expression, expressions.Condition, expressions.Scope{Params: k.params, Authorizer: true}, mode(k.known.validations, expression))
	addCompileError(p, "expression", compiled.Expression, compiled.Error)
}

func (k *expressionChecker) message(p *check.Part, expression string) {
	compiled := k.compiler.Compile(expression, expressions.Message, expressions.Scope{Params: k.params}, mode(k.known.messages, expression))
	addCompileError(p, "messageExpression", compiled.Expression, compiled.Error)
}

func (k *expressionChecker) annotation(p *check.Part, expression string) {
	compiled := k.compiler.Compile(strings.TrimSpace(expression), expressions.AuditValue, expressions.Scope{Params: k.params, Authorizer: true},
		mode(k.known.annotations, expression))
	addCompileError(p, "valueExpression", expression, compiled.Error)
}

func (k *expressionChecker) mutation(p *check.Part, expression string, result expressions.Result) {
	compiled := k.compiler.Compile(strings.TrimSpace(expression), result, expressions.Scope{Params: k.params, Authorizer: true, Patch: true},
		mode(k.known.configurations, expression))
	addCompileError(p, "expression", compiled.Expression, compiled.Error)
}

func addCompileError(p *check.Part, name, expression string, err *apiservercel.Error) {
	switch {
	case err == nil:
	case err.Type == apiservercel.ErrorTypeInvalid:
		p.Invalid(name, expression, err.Detail)
	default:
		p.Add(field.InternalError(p.Path(name), err))
	}
}
