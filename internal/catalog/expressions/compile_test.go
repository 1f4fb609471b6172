package expressions_test

import (
	"strings"
	"testing"

	"skiff/internal/catalog/expressions"
)

func TestCompile(t *testing.T) {
	all := expressions.Scope{Params: true, Authorizer: true}
	patch := expressions.Scope{Params: true, Authorizer: true, Patch: true}
	for _, c := range []struct {
		expression string
		result     expressions.Result
		scope      expressions.Scope
		want       string // the start of the error; empty if the expression compiles
	}{
		{"true", expressions.Condition, expressions.Scope{}, ""},
		{"params.x == object.y && authorizer.requestResource.check('get').allowed()", expressions.Condition, all, ""},
		{"request.userInfo.groups.exists(g, g == 'system:masters') && request.options.x == 1", expressions.Condition, expressions.Scope{}, ""},
		{"namespaceObject.metadata.labels['a'] == 'b'", expressions.Condition, expressions.Scope{}, ""},
		{"params.x", expressions.Anything, expressions.Scope{}, "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.x\n | ^"},
		{"authorizer.path('/').check('get').allowed()", expressions.Condition, expressions.Scope{Params: true}, "compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer'"},
		{"object.x in [1, 2, ", expressions.Condition, all, "compilation failed: ERROR: <input>:1:20: Syntax error: missing ']' at '<EOF>'"},
		{"1", expressions.Condition, all, "must evaluate to bool but got int"},
		{"0 == 0", expressions.Message, all, "must evaluate to string but got bool"},
		{"true", expressions.AuditValue, all, "must evaluate to one of [string null_type] but got bool"},
		{"null", expressions.AuditValue, all, ""},
		{"1 < 2", expressions.ApplyConfiguration, patch, "must evaluate to Object but got bool"},
		{"Object{spec: Object.spec{replicas: 1}}", expressions.ApplyConfiguration, patch, ""},
		{"Object{}", expressions.ApplyConfiguration, all, "compilation failed: ERROR: <input>:1:7: undeclared reference to 'Object'"},
		{"[JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('a/b'), value: 1}]", expressions.JSONPatch, patch, ""},
		{"[JSONPatch{nonsense: 'add'}]", expressions.JSONPatch, patch, "compilation failed: ERROR: <input>:1:20: expected type of field 'nonsense' is '' but provided type is 'string'"},
		{"Object{}", expressions.JSONPatch, patch, "must evaluate to list(JSONPatch) but got Object"},
		{"variables.x == 1", expressions.Condition, all, "compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables'"},
	} {
		for _, mode := range []expressions.Mode{expressions.New, expressions.Stored} {
			compiled := expressions.NewCompiler(false).Compile(c.expression, c.result, c.scope, mode)
			switch {
			case c.want == "" && (compiled.Error != nil || compiled.Program == nil):
				t.Errorf("%s: %v", c.expression, compiled.Error)
			case c.want != "" && (compiled.Error == nil || !strings.HasPrefix(compiled.Error.Detail, c.want)):
				t.Errorf("%s:\ngot  %v\nwant %s", c.expression, compiled.Error, c.want)
			}
		}
	}
}

func TestVariables(t *testing.T) {
	all := expressions.Scope{Params: true, Authorizer: true}
	c := expressions.NewCompiler(true)
	for _, v := range []struct{ name, expression, want string }{
		{"replicas", "114 + 514", ""},
		{"later", "variables.early", "compilation failed: ERROR: <input>:1:10: undefined field 'early'"},
		{"sum", "variables.replicas + 1", ""},
		{"wrong", "variables.replicas + '514'", "compilation failed: ERROR: <input>:1:20: found no matching overload for '_+_' applied to '(int, string)'"},
		{"list", "[1, 2].map(x, string(x))", ""},
		{"map", "{'a': [1]}", ""},
	} {
		compiled := c.CompileVariable(v.name, v.expression, all, expressions.New)
		if v.want == "" && compiled.Error != nil || v.want != "" && (compiled.Error == nil || !strings.HasPrefix(compiled.Error.Detail, v.want)) {
			t.Errorf("%s: %v", v.name, compiled.Error)
		}
	}
	for expression, want := range map[string]string{
		"variables.sum == 629 && variables.list[0] == '1' && variables.map['a'][0] == 1": "",
		"variables.sum == '629'":  "compilation failed: ERROR: <input>:1:15: found no matching overload for '_==_' applied to '(int, string)'",
		"variables.wrong == 1":    "", // its type is not known
		"variables.list[0] == 1":  "compilation failed: ERROR: <input>:1:19: found no matching overload for '_==_' applied to '(string, int)'",
		"variables.nonsense == 1": "compilation failed: ERROR: <input>:1:10: undefined field 'nonsense'",
	} {
		for _, scope := range []expressions.Scope{all, {Params: true}} {
			compiled := c.Compile(expression, expressions.Condition, scope, expressions.Stored)
			if want == "" && compiled.Error != nil || want != "" && (compiled.Error == nil || !strings.HasPrefix(compiled.Error.Detail, want)) {
				t.Errorf("%s:\ngot  %v\nwant %s", expression, compiled.Error, want)
			}
		}
	}
}

// BenchmarkCompile is a policy with a variable and a validation.
func BenchmarkCompile(b *testing.B) {
	scope := expressions.Scope{Authorizer: true}
	b.ReportAllocs()
	for b.Loop() {
		c := expressions.NewCompiler(true)
		c.CompileVariable("replicas", "object.spec.replicas", scope, expressions.Stored)
		if compiled := c.Compile("variables.replicas > 1", expressions.Condition, scope, expressions.Stored); compiled.Error != nil {
			b.Fatal(compiled.Error)
		}
	}
}
