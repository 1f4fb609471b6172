package gnostic

import (
	"fmt"
	"maps"

	"google.golang.org/protobuf/encoding/protowire"
)

// V2 encodes an OpenAPI v2 document.
func V2(document []byte) ([]byte, error) {
	return v2Document().append(make([]byte, 0, len(document)), document)
}

// v2Document returns the table of OpenAPIv2.proto.
func v2Document() *message {
	reference := &message{fields: map[string]field{"$ref": str(1), "description": str(2)}}
	externalDocs := &message{extensions: 3, fields: map[string]field{"description": str(1), "url": str(2)}}
	// The only security scheme is an API key, which is what OpenAPI v2 calls a bearer token.
	security := &message{choose: always(object(2, &message{extensions: 5, fields: map[string]field{
		"type": str(1), "name": str(2), "in": str(3), "description": str(4)}}))}
	schema := &message{extensions: 31}
	schema.fields = map[string]field{
		"$ref": str(1), "format": str(2), "title": str(3), "description": str(4),
		"default": anything(5), "multipleOf": double(6), "maximum": double(7), "exclusiveMaximum": boolean(8),
		"minimum": double(9), "exclusiveMinimum": boolean(10), "maxLength": integer(11), "minLength": integer(12),
		"pattern": str(13), "maxItems": integer(14), "minItems": integer(15), "uniqueItems": boolean(16),
		"maxProperties": integer(17), "minProperties": integer(18), "required": strs(19), "enum": anythings(20),
		"additionalProperties": allowed(21, schema), "type": wrapped(22), "items": list(23, schema), "allOf": objects(24, schema),
		"properties": object(25, &message{named: entry(1, schema)}), "discriminator": str(26), "readOnly": boolean(27),
		"externalDocs": object(29, externalDocs), "example": anything(30),
	}
	response := &message{extensions: 5, fields: map[string]field{
		"description": str(1), "schema": object(2, &message{choose: always(object(1, schema))}),
	}}
	parameter := v2Parameter(schema)
	parameterOrReference := orReference(parameter, reference)
	operation := &message{extensions: 13, fields: map[string]field{
		"tags": strs(1), "summary": str(2), "description": str(3), "externalDocs": object(4, externalDocs),
		"operationId": str(5), "produces": strs(6), "consumes": strs(7), "parameters": objects(8, parameterOrReference),
		"responses": object(9, &message{extensions: 2, named: entry(1, orReference(response, reference))}),
		"schemes":   strs(10), "deprecated": boolean(11), "security": objects(12, securityRequirement()),
	}}
	path := &message{extensions: 10, fields: map[string]field{
		"$ref": str(1), "get": object(2, operation), "put": object(3, operation), "post": object(4, operation),
		"delete": object(5, operation), "options": object(6, operation), "head": object(7, operation), "patch": object(8, operation),
		"parameters": objects(9, parameterOrReference),
	}}
	return &message{extensions: 16, fields: map[string]field{
		"swagger": str(1),
		"info": object(2, &message{extensions: 7, fields: map[string]field{
			"title": str(1), "version": str(2), "description": str(3)}}),
		"host": str(3), "basePath": str(4), "schemes": strs(5), "consumes": strs(6), "produces": strs(7),
		"paths":               object(8, &message{extensions: 1, named: entry(2, path)}),
		"definitions":         object(9, &message{named: entry(1, schema)}),
		"parameters":          object(10, &message{named: entry(1, parameter)}),
		"responses":           object(11, &message{named: entry(1, response)}),
		"security":            objects(12, securityRequirement()),
		"securityDefinitions": object(13, &message{named: entry(1, security)}),
		"externalDocs":        object(15, externalDocs),
	}}
}

// v2Parameter returns the table of parameters, which depends on their place: the body has a schema, the others have simple types.
func v2Parameter(schema *message) *message {
	simple := func(n protowire.Number, m *message) field { return object(2, &message{choose: always(object(n, m))}) }
	places := map[string]field{
		`"body"`: object(1, &message{extensions: 6, fields: map[string]field{
			"description": str(1), "name": str(2), "in": str(3), "required": boolean(4), "schema": object(5, schema)}}),
		`"header"`:   simple(1, v2Simple(false)),
		`"formData"`: simple(2, v2Simple(true)),
		`"query"`:    simple(3, v2Simple(true)),
		`"path"`:     simple(4, v2Simple(false)),
	}
	return &message{choose: func(parameter []byte) (field, error) {
		in, err := member(parameter, "in")
		if err != nil {
			return nil, err
		}
		f, ok := places[string(in)]
		if !ok {
			return nil, fmt.Errorf("unknown place %s of a parameter", in)
		}
		return f, nil
	}}
}

// v2Simple returns the table of a parameter of a simple type. In two of the four places it may be empty, which shifts the numbers
// of the fields that follow.
func v2Simple(mayBeEmpty bool) *message {
	n := protowire.Number(5)
	m := &message{fields: map[string]field{"required": boolean(1), "in": str(2), "description": str(3), "name": str(4)}}
	if mayBeEmpty {
		m.fields["allowEmptyValue"] = boolean(n)
		n++
	}
	maps.Copy(m.fields, map[string]field{
		"type": str(n), "format": str(n + 1), "collectionFormat": str(n + 3), "default": anything(n + 4),
		"maximum": double(n + 5), "exclusiveMaximum": boolean(n + 6), "minimum": double(n + 7), "exclusiveMinimum": boolean(n + 8),
		"maxLength": integer(n + 9), "minLength": integer(n + 10), "pattern": str(n + 11), "maxItems": integer(n + 12),
		"minItems": integer(n + 13), "uniqueItems": boolean(n + 14), "enum": anythings(n + 15), "multipleOf": double(n + 16),
	})
	m.extensions = n + 17
	return m
}

func securityRequirement() *message {
	return &message{named: namedAs(1, wrapped(2))}
}

func always(f field) func([]byte) (field, error) {
	return func([]byte) (field, error) { return f, nil }
}

// orReference returns the table of a message or a reference to one.
func orReference(m, reference *message) *message {
	itself, other := object(1, m), object(2, reference)
	return &message{choose: func(value []byte) (field, error) {
		ref, err := member(value, "$ref")
		if ref != nil {
			return other, err
		}
		return itself, err
	}}
}
