package nonsense

// Definitions are valid CustomResourceDefinitions that together have every field: documents to change. Their group is nonsense.example.com.
var Definitions = []string{
	`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.nonsense.example.com"},"spec":{
		"group":"nonsense.example.com","scope":"Namespaced","names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList","shortNames":["th"],"categories":["all"]},
		"versions":[{"name":"v1","served":true,"storage":true,
			"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas","labelSelectorPath":".status.selector"}},
			"additionalPrinterColumns":[{"name":"Name","type":"string","jsonPath":".spec.name"},{"name":"At","type":"date","jsonPath":".metadata.creationTimestamp","priority":1,"format":"date","description":"d"}],
			"selectableFields":[{"jsonPath":".spec.name"},{"jsonPath":".spec.replicas"}],
			"schema":{"openAPIV3Schema":{"type":"object","required":["spec"],"properties":{
				"metadata":{"type":"object","properties":{"name":{"type":"string","maxLength":20}}},
				"spec":{"type":"object","default":{"replicas":2},"x-kubernetes-validations":[{"rule":"self.replicas <= 10","message":"at most ten","reason":"FieldValueForbidden","fieldPath":".replicas"},
						{"rule":"!has(oldSelf.name) || self.name == oldSelf.name","messageExpression":"'was ' + oldSelf.name"}],
					"properties":{"name":{"type":"string","minLength":1,"maxLength":10,"pattern":"^[a-z]*$"},"replicas":{"type":"integer","format":"int32","minimum":0,"default":1},
						"ratio":{"type":"number","maximum":1,"exclusiveMaximum":true,"multipleOf":0.5,"nullable":true},"port":{"x-kubernetes-int-or-string":true},
						"labels":{"type":"object","maxProperties":3,"additionalProperties":{"type":"string","maxLength":5}},
						"set":{"type":"array","maxItems":9,"x-kubernetes-list-type":"set","items":{"type":"string","maxLength":20}},
						"kind":{"type":"string","enum":["a","b"]},"at":{"type":"string","format":"date-time"},
						"any":{"x-kubernetes-preserve-unknown-fields":true},"pod":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},
						"either":{"type":"object","oneOf":[{"required":["a"]},{"required":["b"]}],"not":{"required":["c"]},"properties":{"a":{"type":"string"},"b":{"type":"boolean"}}},
						"ports":{"type":"array","maxItems":9,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"items":{"type":"object","required":["name"],"x-kubernetes-map-type":"granular",
							"properties":{"name":{"type":"string"},"port":{"type":"integer","format":"int64"}}}}}},
				"status":{"type":"object","properties":{"replicas":{"type":"integer"},"selector":{"type":"string"}}}}}}},
		{"name":"v1beta1","served":true,"storage":false,"deprecated":true,"deprecationWarning":"use v1","schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`,
	`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"others.nonsense.example.com","labels":{"a":"b"},"annotations":{"api-approved.kubernetes.io":"https://example.com"}},"spec":{
		"group":"nonsense.example.com","scope":"Cluster","preserveUnknownFields":false,"names":{"plural":"others","kind":"Other"},
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1","v1beta1"],"clientConfig":{"service":{"namespace":"default","name":"none","path":"/convert","port":443}}}},
		"versions":[{"name":"v1","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"string"}}}}},
		{"name":"v2","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"array","items":{"type":"object","nullable":true,"allOf":[{"minProperties":1}],"properties":{"a":{"type":"integer"}}}},
			"rules":{"type":"object","maxProperties":10,"additionalProperties":{"type":"string","maxLength":30,"x-kubernetes-validations":[{"rule":"self.matches('^[a-z]+$')"},{"rule":"oldSelf.orValue('') == '' || self == oldSelf.value()","optionalOldSelf":true}]}}}}}},
		{"name":"v3","served":false,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","title":"t","description":"d","externalDocs":{"url":"https://example.com","description":"d"},"example":{"a":1}}}}]},
		"status":{"acceptedNames":{"plural":"x","kind":"X"},"conditions":[{"type":"Established","status":"True"}],"storedVersions":["v9"]}}`,
}

// Objects are valid objects of the first definition in v1, and of the second in v2.
var Objects = []string{
	`{"apiVersion":"nonsense.example.com/v1","kind":"Thing","metadata":{"name":"a","labels":{"a":"b"}},"spec":{"name":"a","replicas":3,"ratio":0.5,"port":80,"labels":{"a":"b"},"set":["a","b"],"kind":"a","at":"2020-01-01T00:00:00Z",
		"any":{"x":[[{"y":null}]]},"pod":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{}},"either":{"a":"x"},"ports":[{"name":"a","port":1},{"name":"b"}]},"status":{"replicas":1,"selector":"a=b"}}`,
	`{"apiVersion":"nonsense.example.com/v2","kind":"Other","metadata":{"name":"a"},"spec":[{"a":1},null],"rules":{"a":"b"}}`,
}
