package validating

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"skiff/internal/apiserver/admission/policy/evaluate"
	"skiff/internal/catalog"
	"skiff/internal/catalog/expressions"
)

// compiled is a policy whose expressions are compiled. What does not compile fails when it is evaluated.
type compiled struct {
	spec       *admissionregistrationv1.ValidatingAdmissionPolicySpec
	variables  *evaluate.VariableSet
	conditions evaluate.Conditions

	validations, messages, annotations []expressions.Compiled // messages has an empty item for each validation without one
}

func compile(obj catalog.Object) *compiled {
	spec := &obj.(*admissionregistrationv1.ValidatingAdmissionPolicy).Spec
	scope := expressions.Scope{Params: spec.ParamKind != nil, Authorizer: true}
	compiler := expressions.NewCompiler(true)
	c := &compiled{spec: spec, variables: evaluate.CompileVariables(compiler, spec.Variables, scope),
		conditions: evaluate.CompileConditions(compiler, spec.MatchConditions, scope)}
	messageScope := expressions.Scope{Params: scope.Params}
	hasMessages := false
	for i := range spec.Validations {
		v := &spec.Validations[i]
		c.validations = append(c.validations, compiler.Compile(v.Expression, expressions.Condition, scope, expressions.Stored))
		var message expressions.Compiled
		if v.MessageExpression != "" {
			message = compiler.Compile(v.MessageExpression, expressions.Message, messageScope, expressions.Stored)
			hasMessages = true
		}
		c.messages = append(c.messages, message)
	}
	if !hasMessages {
		c.messages = nil
	}
	for _, a := range spec.AuditAnnotations {
		c.annotations = append(c.annotations, compiler.Compile(a.ValueExpression, expressions.AuditValue, scope, expressions.Stored))
	}
	return c
}
