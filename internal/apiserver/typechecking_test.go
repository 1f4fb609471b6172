package apiserver_test

import (
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"skiff/internal/apiserver"
)

// TestTypeCheckingOfCustomKinds has a policy for a custom kind, with parameters of another, checked against the schemas of their definitions.
func TestTypeCheckingOfCustomKinds(t *testing.T) {
	s := start(t, func(o *apiserver.Options) { o.CheckPolicyTypes = true })
	s.define(cronTabs)
	s.define(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"limits.example.com"},"spec":{
		"group":"example.com","scope":"Cluster","names":{"plural":"limits","kind":"Limit"},"versions":[{"name":"v1","served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}]}}`)
	const policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	s.send("POST", policies, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"p"},"spec":{
		"paramKind":{"apiVersion":"example.com/v1","kind":"Limit"},
		"matchConstraints":{"resourceRules":[{"apiGroups":["stable.example.com"],"apiVersions":["v1"],"operations":["*"],"resources":["crontabs"]}]},
		"validations":[
			{"expression":"object.spec.replicas <= params.replicas && object.metadata.name != ''"},
			{"expression":"object.spec.replicas == 'a'"},
			{"expression":"object.spec.cronSpec == params.nonsense"}]}}`).ok()
	var policy *admissionregistrationv1.ValidatingAdmissionPolicy
	s.eventually("checked", func() bool {
		policy = into[admissionregistrationv1.ValidatingAdmissionPolicy](s.send("GET", policies+"/p", nil).ok())
		return policy.Status.TypeChecking != nil
	})
	const kind = "stable.example.com/v1, Kind=CronTab: "
	want := []admissionregistrationv1.ExpressionWarning{
		{FieldRef: "spec.validations[1].expression", Warning: kind + "ERROR: <input>:1:22: found no matching overload for '_==_' applied to '(int, string)'\n" +
			" | object.spec.replicas == 'a'\n | .....................^\n"},
		{FieldRef: "spec.validations[2].expression", Warning: kind + "ERROR: <input>:1:31: undefined field 'nonsense'\n" +
			" | object.spec.cronSpec == params.nonsense\n | ..............................^\n"},
	}
	if got := policy.Status.TypeChecking.ExpressionWarnings; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
