package admissionregistration_test

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"skiff/internal/catalog"
	"skiff/internal/catalog/admissionregistration"
)

const matching = "matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}"

// parse returns a policy with its defaults.
func parse(t *testing.T, obj catalog.Object, info *catalog.Info, spec string) catalog.Object {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte("{metadata: {name: p}, spec: {"+matching+", "+spec+"}}"), obj); err != nil {
		t.Fatalf("%v in %s", err, spec)
	}
	info.Default(obj)
	return obj
}

// TestExpressionsAreCompiled has the errors that upstream's validation has for the same policies.
func TestExpressionsAreCompiled(t *testing.T) {
	validating, mutating := admissionregistration.ValidatingAdmissionPolicy.Info(), admissionregistration.MutatingAdmissionPolicy.Info()
	for _, c := range []struct{ kind, spec, want string }{
		{"validating", `validations: [{expression: "object.x in [1, 2, "}]`,
			`spec.validations[0].expression: Invalid value: "object.x in [1, 2, ": compilation failed: ERROR: <input>:1:20: Syntax error: missing ']' at '<EOF>'`},
		{"validating", `validations: [{expression: "true", messageExpression: "object.x in [1, 2, "}]`,
			`spec.validations[0].messageExpression: Invalid value: "object.x in [1, 2, ": compilation failed: ERROR: <input>:1:20: Syntax error: missing ']' at '<EOF>'`},
		{"validating", `validations: [{expression: "true", messageExpression: "0 == 0"}]`,
			`spec.validations[0].messageExpression: Invalid value: "0 == 0": must evaluate to string`},
		{"validating", `auditAnnotations: [{key: k, valueExpression: "true"}]`,
			`spec.auditAnnotations[0].valueExpression: Invalid value: "true": must evaluate to one of [string null_type]`},
		{"validating", `auditAnnotations: [{key: k, valueExpression: "object.x in [1, 2, "}]`,
			`spec.auditAnnotations[0].valueExpression: Invalid value: "object.x in [1, 2, ": compilation failed: ERROR: <input>:1:19: Syntax error: missing ']' at '<EOF>'`},
		{"validating", `matchConditions: [{name: m, expression: "test.x"}], validations: [{expression: "true"}]`,
			`spec.matchConditions[0].expression: Invalid value: "test.x": compilation failed: ERROR: <input>:1:1: undeclared reference to 'test'`},
		{"validating", `matchConditions: [{name: m, expression: "params.x"}], validations: [{expression: "true"}]`,
			`spec.matchConditions[0].expression: Invalid value: "params.x": compilation failed: ERROR: <input>:1:1: undeclared reference to 'params'`},
		{"validating", `paramKind: {apiVersion: v1, kind: ConfigMap}, matchConditions: [{name: m, expression: "params.x == 1"}], validations: [{expression: "params.x == 1"}]`, ""},
		{"validating", `variables: [{name: foo, expression: "114 + '514'"}], validations: [{expression: "true"}]`,
			`spec.variables[0].expression: Invalid value: "114 + '514'": compilation failed: ERROR: <input>:1:5: found no matching overload for '_+_' applied to '(int, string)'`},
		{"validating", `variables: [{name: foo, expression: "1 + variables.foo"}], validations: [{expression: "true"}]`,
			`spec.variables[0].expression: Invalid value: "1 + variables.foo": compilation failed: ERROR: <input>:1:14: undefined field 'foo'`},
		{"validating", `variables: [{name: foo, expression: "1 + 1"}], validations: [{expression: "variables.foo > 1"}, {expression: "variables.replicas == 2"}]`,
			`spec.validations[1].expression: Invalid value: "variables.replicas == 2": compilation failed: ERROR: <input>:1:10: undefined field 'replicas'`},
		{"validating", `validations: [{expression: "variables.x"}]`,
			`spec.validations[0].expression: Invalid value: "variables.x": compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables'`},
		{"mutating", `reinvocationPolicy: Never, mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: " 1 < 2 "}}]`,
			`spec.mutations[0].applyConfiguration.expression: Invalid value: "1 < 2": must evaluate to Object`},
		{"mutating", `reinvocationPolicy: Never, mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[1]"}}]`,
			`spec.mutations[0].jsonPatch.expression: Invalid value: "[1]": must evaluate to list(JSONPatch) but got list(int)`},
		{"mutating", `reinvocationPolicy: Never, variables: [{name: x, expression: "///"}], mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{}"}}]`,
			`spec.variables[0].expression: Invalid value: "///": compilation failed`},
		{"mutating", `reinvocationPolicy: Never, mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "variables.y"}}]`, "undefined field 'y'"},
	} {
		info, obj := validating, catalog.Object(&admissionregistrationv1.ValidatingAdmissionPolicy{})
		if c.kind == "mutating" {
			info, obj = mutating, &admissionregistrationv1.MutatingAdmissionPolicy{}
		}
		errs := info.Validate(parse(t, obj, info, c.spec))
		switch {
		case c.want == "" && len(errs) > 0:
			t.Errorf("%s: %v", c.spec, errs)
		case c.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want)):
			t.Errorf("%s:\ngot  %v\nwant %s", c.spec, errs, c.want)
		}
	}
}

// TestUnchangedConditionsAreNotCompiled: what was stored stays valid as long as nobody touches it.
func TestUnchangedConditionsAreNotCompiled(t *testing.T) {
	info := admissionregistration.ValidatingAdmissionPolicy.Info()
	const spec = `matchConditions: [{name: m, expression: "nonsense"}], validations: [{expression: "true"}]`
	old := parse(t, &admissionregistrationv1.ValidatingAdmissionPolicy{}, info, spec)
	if errs := info.ValidateUpdate(t.Context(), parse(t, &admissionregistrationv1.ValidatingAdmissionPolicy{}, info, spec), old); len(errs) > 0 {
		t.Errorf("unchanged: %v", errs)
	}
	changed := parse(t, &admissionregistrationv1.ValidatingAdmissionPolicy{}, info, strings.Replace(spec, "name: m", "name: n", 1))
	if errs := info.ValidateUpdate(t.Context(), changed, old); len(errs) != 1 {
		t.Errorf("changed: %v", errs)
	}
}
