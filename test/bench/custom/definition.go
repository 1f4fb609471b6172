package main

import (
	"encoding/json"
	"fmt"
)

type fields = map[string]any

const (
	group     = "bench.example.com"
	namespace = "bench"
)

// objectsOf returns the path of a plural's objects.
func objectsOf(plural string) string {
	return fmt.Sprintf("/apis/%s/v1/namespaces/%s/%s", group, namespace, plural)
}

// filler is a schema that brings others to their size, as definitions have it: more words than types.
func filler(i int) fields {
	return fields{"type": "object", "description": fmt.Sprintf("A field that says something about the wanted state of the object, number %d.", i), "properties": fields{
		"name":    fields{"type": "string", "description": "The name of the thing that is referred to, in the same namespace."},
		"count":   fields{"type": "integer", "format": "int32", "minimum": 0},
		"enabled": fields{"type": "boolean"},
	}}
}

// fill adds fields to the properties of a schema's spec until the schema has the size.
func fill(schema, properties fields, size int) error {
	for i := 0; ; i++ {
		text, err := json.Marshal(schema)
		if err != nil || len(text) >= size {
			return err
		}
		properties[fmt.Sprintf("field%d", i)] = filler(i)
	}
}

// definition returns a definition in JSON. Its columns are printed in tables.
func definition(group, plural, singular, kind string, schema fields, columns ...fields) ([]byte, error) {
	version := fields{"name": "v1", "served": true, "storage": true, "subresources": fields{"status": fields{}}, "schema": fields{"openAPIV3Schema": schema}}
	if len(columns) > 0 {
		version["additionalPrinterColumns"] = columns
	}
	return json.Marshal(fields{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": fields{"name": plural + "." + group},
		"spec": fields{"group": group, "scope": "Namespaced", "names": fields{"plural": plural, "singular": singular, "kind": kind}, "versions": []fields{version}}})
}

// usedDefinition is the definition whose objects are measured: types with limits, a default, a list that is a map, and four rules.
func usedDefinition(plural, singular, kind string) ([]byte, error) {
	integer := fields{"type": "integer", "format": "int32", "minimum": 0, "maximum": 1000}
	properties := fields{
		"class": fields{"type": "string", "maxLength": 63, "x-kubernetes-validations": []fields{{"rule": "self == oldSelf", "message": "class is immutable"}}},
		"image": fields{"type": "string", "maxLength": 255, "pattern": "^[a-z0-9./:-]+$"}, "paused": fields{"type": "boolean", "default": false},
		"replicas": integer, "minReplicas": integer, "maxReplicas": integer,
		"selector": fields{"type": "object", "additionalProperties": fields{"type": "string", "maxLength": 63}},
		"ports": fields{"type": "array", "maxItems": 16, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []string{"name"}, "items": fields{"type": "object", "required": []string{"name", "port"},
			"properties": fields{"name": fields{"type": "string", "maxLength": 15}, "port": fields{"type": "integer"}, "protocol": fields{"type": "string", "enum": []string{"TCP", "UDP"}, "default": "TCP"}}}},
	}
	spec := fields{"type": "object", "required": []string{"replicas", "class"}, "properties": properties, "x-kubernetes-validations": []fields{
		{"rule": "self.minReplicas <= self.replicas && self.replicas <= self.maxReplicas", "message": "replicas must be between minReplicas and maxReplicas"},
		{"rule": "!has(self.image) || self.image.contains('/')", "message": "image must name a registry"},
		{"rule": "self.ports.all(p, p.port > 0 && p.port < 65536)", "message": "ports must be valid"},
	}}
	schema := fields{"type": "object", "properties": fields{"spec": spec, "status": fields{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}
	if err := fill(schema, properties, *schemaSize); err != nil {
		return nil, err
	}
	return definition(group, plural, singular, kind, schema,
		fields{"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}, fields{"name": "Image", "type": "string", "jsonPath": ".spec.image"},
		fields{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
}

// object is a custom object of one kilobyte.
func object(kind, name string) ([]byte, error) {
	spec := fields{"class": "standard", "image": "registry.example/web:1.0", "replicas": 3, "minReplicas": 1, "maxReplicas": 10, "selector": fields{"app": "bench", "tier": "web"},
		"ports": []fields{{"name": "http", "port": 8080}, {"name": "metrics", "port": 9090, "protocol": "TCP"}}}
	for i := range 8 {
		spec[fmt.Sprintf("field%d", i)] = fields{"name": fmt.Sprintf("what-%s-refers-to-%d", name, i), "count": i, "enabled": true}
	}
	return json.Marshal(fields{"apiVersion": group + "/v1", "kind": kind, "spec": spec,
		"metadata": fields{"name": name, "labels": fields{"app": "bench", "tier": "web"}, "annotations": fields{"note": "a realistic annotation, a realistic annotation"}}})
}
