package mutating

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"skiff/internal/apiserver/admission/policy/evaluate"
	"skiff/internal/catalog"
	"skiff/internal/catalog/expressions"
)

// compiled is a policy whose expressions are compiled. What does not compile fails when it is evaluated.
type compiled struct {
	variables  *evaluate.VariableSet
	conditions evaluate.Conditions
	mutations  []mutation
	reinvoke   bool // if the object is changed after the policy has run
}

type mutation struct {
	expression []expressions.Compiled // one
	patch      bool                   // a JSON patch; otherwise an apply configuration
}

func compile(obj catalog.Object) *compiled {
	spec := &obj.(*admissionregistrationv1.MutatingAdmissionPolicy).Spec
	scope := expressions.Scope{Params: spec.ParamKind != nil, Authorizer: true}
	compiler := expressions.NewCompiler(true)
	c := &compiled{variables: evaluate.CompileVariables(compiler, spec.Variables, scope),
		conditions: evaluate.CompileConditions(compiler, spec.MatchConditions, scope),
		reinvoke:   spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy}
	scope.Patch = true
	add := func(expression string, result expressions.Result, patch bool) {
		c.mutations = append(c.mutations, mutation{[]expressions.Compiled{compiler.Compile(expression, result, scope, expressions.Stored)}, patch})
	}
	for _, m := range spec.Mutations {
		switch {
		case m.PatchType == admissionregistrationv1.PatchTypeJSONPatch && m.JSONPatch != nil:
			add(m.JSONPatch.Expression, expressions.JSONPatch, true)
		case m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			add(m.ApplyConfiguration.Expression, expressions.ApplyConfiguration, false)
		}
	}
	return c
}
