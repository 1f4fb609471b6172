package schema

import (
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// definition returns a definition of widgets.example.com with one version, whose other fields may be set by the caller.
func definition(t testing.TB, openAPI string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"}}
	crd.Spec.Group = "example.com"
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"}
	crd.Status.AcceptedNames.Kind = "Widget"
	v := apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1", Served: true, Storage: true}
	if openAPI != "" {
		props := &apiextensionsv1.JSONSchemaProps{}
		if err := yaml.Unmarshal([]byte(openAPI), props); err != nil {
			t.Fatal(err)
		}
		v.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: props}
	}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{v}
	return crd
}

func withStatus(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	crd.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	return crd
}

// object decodes YAML as the server decodes requests, and adds what every object has.
func object(t testing.TB, text string) map[string]any {
	t.Helper()
	encoded, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	obj := map[string]any{}
	if err := json.Unmarshal(encoded, &obj); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"}} {
		if _, ok := obj[name]; !ok {
			obj[name] = value
		}
	}
	return obj
}

func texts(errs field.ErrorList) string {
	var lines []string
	for _, err := range errs {
		lines = append(lines, err.Error())
	}
	return strings.Join(lines, "\n")
}

// twentyRules is the schema of the benchmarks: 20 rules on the spec, most of which look at several fields.
func twentyRules(rules bool) string {
	text := `
type: object
properties:
  spec:
    type: object
    required: [name, replicas]
    properties:
      name: {type: string, maxLength: 64, pattern: '^[a-z0-9-]+$'}
      replicas: {type: integer, minimum: 0, maximum: 100, default: 1}
      minReplicas: {type: integer, minimum: 0}
      maxReplicas: {type: integer, maximum: 1000}
      mode: {type: string, enum: [Fast, Slow, Off], default: Slow}
      paused: {type: boolean}
      image: {type: string, maxLength: 256}
      port: {x-kubernetes-int-or-string: true}
      labels: {type: object, maxProperties: 16, additionalProperties: {type: string, maxLength: 63}}
      hosts: {type: array, maxItems: 16, x-kubernetes-list-type: set, items: {type: string, maxLength: 253}}
      ports:
        type: array
        maxItems: 16
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [name]
        items:
          type: object
          required: [name]
          properties:
            name: {type: string, maxLength: 15}
            port: {type: integer, format: int32}
            protocol: {type: string, enum: [TCP, UDP], default: TCP}
      strategy:
        type: object
        properties:
          type: {type: string}
          maxSurge: {x-kubernetes-int-or-string: true}
`
	if !rules {
		return text
	}
	text += "    x-kubernetes-validations:\n"
	for i := range 20 {
		var rule string
		switch i % 5 {
		case 0:
			rule = "self.minReplicas <= self.replicas && self.replicas <= self.maxReplicas"
		case 1:
			rule = "self.name == oldSelf.name"
		case 2:
			rule = "!has(self.mode) || self.mode != 'Off' || self.replicas == 0"
		case 3:
			rule = "self.image.startsWith('registry')"
		case 4:
			rule = "size(self.ports) < 10 && self.strategy.type != ''"
		}
		text += fmt.Sprintf("    - rule: \"%s\"\n      message: rule %d\n", rule, i)
	}
	return text
}

const typicalObject = `
spec:
  name: frontend
  replicas: 3
  minReplicas: 1
  maxReplicas: 10
  mode: Fast
  paused: false
  image: registry.example.com/team/frontend:v1.2.3
  port: http
  labels: {app: frontend, tier: web}
  hosts: [a.example.com, b.example.com]
  ports:
  - {name: http, port: 8080, protocol: TCP}
  - {name: metrics, port: 9090}
  strategy: {type: RollingUpdate, maxSurge: 25%}
`
