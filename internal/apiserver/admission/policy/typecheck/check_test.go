package typecheck_test

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/policy/typecheck"
	"skiff/internal/apiserver/openapi"
	"skiff/internal/catalog/all"
)

func TestCheck(t *testing.T) {
	schemas := typecheck.Served(typecheck.Resources(all.Resources()), openapi.JSON)
	for _, c := range []struct {
		name, spec string
		want       []string // "field: a part of the warning"
	}{
		{"correct", `
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}
  validations: [{expression: "object.spec.replicas > 1 && oldObject.metadata.name == object.metadata.name && request.operation == 'CREATE'"}]`, nil},
		{"confused", `
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}
  validations: [{expression: "object.spec.replicas > '1'", messageExpression: "'wants replicas > 1, got ' + object.spec.replicas"}]`, []string{
			"spec.validations[0].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'\n",
			"spec.validations[0].messageExpression: apps/v1, Kind=Deployment: ERROR: <input>:1:28: found no matching overload for '_+_' applied to '(string, int)'\n"}},
		{"two kinds", `
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [replicasets, deployments]}, {apiGroups: [""], apiVersions: [v1], resources: [pods]}]}
  validations: [{expression: "object.foo < 1 || object.spec.replicas > 1"}]`, []string{
			"spec.validations[0].expression: /v1, Kind=Pod: ERROR: <input>:1:7: undefined field 'foo'\n | object.foo < 1 || object.spec.replicas > 1\n | ......^\nERROR: <input>:1:30: undefined field 'replicas'"}},
		{"resources of the core group are looked for in all groups", `
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [events]}]}
  validations: [{expression: "object.involvedObject.name != '' || object.regarding.name != ''"}]`, []string{
			"spec.validations[0].expression: /v1, Kind=Event: ERROR: <input>:1:43: undefined field 'regarding'\n | object.involvedObject.name != '' || object.regarding.name != ''\n | ..........................................^\n\nevents.k8s.io/v1, Kind=Event: ERROR: <input>:1:7: undefined field 'involvedObject'"}},
		{"wildcards and subresources are not checked", `
  matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: [v1], resources: [pods]}, {apiGroups: [""], apiVersions: ["*"], resources: [pods]}, {apiGroups: [""], apiVersions: [v1], resources: ["*", pods/status]}]}
  validations: [{expression: "object.foo"}]`, nil},
		{"params", `
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]}
  validations: [{expression: "object.data == params.data"}, {expression: "params.spec == 1"}]`, []string{
			"spec.validations[1].expression: /v1, Kind=ConfigMap: ERROR: <input>:1:7: undefined field 'spec'"}},
		{"params of an unknown kind", `
  paramKind: {apiVersion: example.com/v1, kind: Limit}
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]}
  validations: [{expression: "params.spec == 1"}]`, nil},
		{"variables", `
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}
  variables: [{name: replicas, expression: object.spec.replicas}, {name: containers, expression: object.spec.template.spec.containers}]
  validations: [{expression: "variables.replicas > 1 && variables.containers.all(c, c.image != '')"}, {expression: "variables.replicas == 'a'"}, {expression: "variables.none"}]`, []string{
			"spec.validations[1].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:20: found no matching overload for '_==_' applied to '(int, string)'",
			"spec.validations[2].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:10: undefined field 'none'"}},
		{"a kind that contains itself", `
  matchConstraints: {resourceRules: [{apiGroups: [apiextensions.k8s.io], apiVersions: [v1], resources: [customresourcedefinitions]}]}
  validations: [{expression: "object.spec.versions.all(v, v.served)"}]`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := admissiontest.Parse(t, &admissionregistrationv1.ValidatingAdmissionPolicy{}, "spec:"+c.spec)
			warnings := typecheck.Check(p, schemas)
			if len(warnings) != len(c.want) {
				t.Fatalf("%d warnings: %v", len(warnings), warnings)
			}
			for i, w := range warnings {
				if got := w.FieldRef + ": " + w.Warning; !strings.Contains(got, c.want[i]) {
					t.Errorf("got  %s\nwant %s", got, c.want[i])
				}
			}
		})
	}
}

// TestDocumentsOfNonsense: a document that cannot be read is as good as none.
func TestDocumentsOfNonsense(t *testing.T) {
	p := admissiontest.Parse(t, &admissionregistrationv1.ValidatingAdmissionPolicy{}, `
spec:
  matchConstraints: {resourceRules: [{apiGroups: [g], apiVersions: [v1], resources: [things]}]}
  validations: [{expression: object.x}]`)
	for _, text := range []string{"", "[]", "{}", `{"components":{"schemas":{"a":[]}}}`,
		`{"components":{"schemas":{"a":{"x-kubernetes-group-version-kind":[{"group":"g","version":"v1","kind":"Thing"}],"properties":{"x":{"$ref":"#/components/schemas/none"}}}}}}`} {
		warnings := typecheck.Check(p, typecheck.Schemas{
			Kinds: func(gvr schema.GroupVersionResource) []schema.GroupVersionKind {
				return []schema.GroupVersionKind{gvr.GroupVersion().WithKind("Thing")}
			},
			Document: func(schema.GroupVersion) ([]byte, error) { return []byte(text), nil }})
		if len(warnings) > 0 {
			t.Errorf("%s: %v", text, warnings)
		}
	}
	ring := `{"components":{"schemas":{"a":{"type":"object","x-kubernetes-group-version-kind":[{"group":"g","version":"v1","kind":"Thing"}],"properties":{"y":{"$ref":"#/components/schemas/a"}}}}}}`
	warnings := typecheck.Check(p, typecheck.Schemas{
		Kinds: func(gvr schema.GroupVersionResource) []schema.GroupVersionKind {
			return []schema.GroupVersionKind{gvr.GroupVersion().WithKind("Thing")}
		},
		Document: func(schema.GroupVersion) ([]byte, error) { return []byte(ring), nil }})
	if len(warnings) != 1 || !strings.Contains(fmt.Sprint(warnings), "undefined field 'x'") {
		t.Errorf("a schema that contains itself: %v", warnings)
	}
}
