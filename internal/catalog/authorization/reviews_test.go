package authorization

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"skiff/internal/catalog"
)

// The expected errors were taken from an upstream server.
func TestValidate(t *testing.T) {
	for _, test := range []struct {
		name string
		of   catalog.Declaration
		into runtime.Object
		body string
		want string
	}{
		{"nothing", SubjectAccessReview, &authorizationv1.SubjectAccessReview{}, `{metadata: {name: a}, spec: {}}`,
			`[spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, ` +
				`spec.user: Invalid value: "": at least one of user or group must be specified, ` +
				`metadata: Invalid value: {"name":"a"}: must be empty]`},
		{"selectors", SubjectAccessReview, &authorizationv1.SubjectAccessReview{},
			`{spec: {user: a, nonResourceAttributes: {path: /x}, resourceAttributes: {fieldSelector: {}, ` +
				`labelSelector: {rawSelector: a, requirements: [{key: "a b", operator: Foo}, {key: a, operator: In}]}}}}`,
			`[spec: Invalid value: {"Path":"/x","Verb":""}: exactly one of nonResourceAttributes or resourceAttributes must be specified, ` +
				`spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, ` +
				`requirements or rawSelector is required, ` +
				`spec.resourceAttributes.labelSelector.rawSelector: Invalid value: "a": may not specified at the same time as requirements, ` +
				`spec.resourceAttributes.labelSelector.requirements[0].key: Invalid value: "a b": name part must consist of alphanumeric ` +
				`characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or ` +
				`'123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'), ` +
				"spec.resourceAttributes.labelSelector.requirements[1].values: Required value: must be specified when `operator` is 'In' or 'NotIn']"},
		{"of oneself", SelfSubjectAccessReview, &authorizationv1.SelfSubjectAccessReview{},
			`{metadata: {labels: {a: b}}, spec: {resourceAttributes: {fieldSelector: {rawSelector: a, requirements: [{key: "", operator: In}]}}}}`,
			`[spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: "a": may not specified at the same time as requirements, ` +
				`spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified, ` +
				"spec.resourceAttributes.fieldSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn', " +
				`metadata: Invalid value: {"labels":{"a":"b"}}: must be empty]`},
		{"in a namespace", LocalSubjectAccessReview, &authorizationv1.LocalSubjectAccessReview{},
			`{metadata: {name: x, namespace: default}, spec: {resourceAttributes: {namespace: other}, nonResourceAttributes: {path: /x, verb: get}}}`,
			`[spec: Invalid value: {"Path":"/x","Verb":"get"}: exactly one of nonResourceAttributes or resourceAttributes must be specified, ` +
				`spec.user: Invalid value: "": at least one of user or group must be specified, ` +
				`metadata: Invalid value: {"name":"x","namespace":"default"}: must be empty except for namespace, ` +
				`spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace, ` +
				`spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: disallowed on this kind of request]`},
		{"nothing wrong", LocalSubjectAccessReview, &authorizationv1.LocalSubjectAccessReview{},
			`{metadata: {namespace: default}, spec: {groups: [a], resourceAttributes: {namespace: default, verb: get, resource: pods}}}`, ""},
		{"nothing wrong with oneself", SelfSubjectAccessReview, &authorizationv1.SelfSubjectAccessReview{},
			`{spec: {nonResourceAttributes: {path: /healthz, verb: get}}}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := yaml.Unmarshal([]byte(test.body), test.into); err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := test.of.Info().Validate(test.into).ToAggregate(); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}
