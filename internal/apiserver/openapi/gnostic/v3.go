package gnostic

import "google.golang.org/protobuf/encoding/protowire"

// V3 encodes an OpenAPI v3 document.
func V3(document []byte) ([]byte, error) {
	return v3Document().append(make([]byte, 0, len(document)), document)
}

// v3Document returns the table of OpenAPIv3.proto.
func v3Document() *message {
	reference := &message{fields: map[string]field{"$ref": str(1), "summary": str(2), "description": str(3)}}
	externalDocs := &message{extensions: 3, fields: map[string]field{"description": str(1), "url": str(2)}}
	schema := &message{extensions: 36}
	schemaOrReference := orReference(schema, reference)
	schema.fields = map[string]field{
		"nullable": boolean(1), "readOnly": boolean(3), "writeOnly": boolean(4), "externalDocs": object(6, externalDocs),
		"example": anything(7), "deprecated": boolean(8), "title": str(9), "multipleOf": double(10),
		"maximum": double(11), "exclusiveMaximum": boolean(12), "minimum": double(13), "exclusiveMinimum": boolean(14),
		"maxLength": integer(15), "minLength": integer(16), "pattern": str(17), "maxItems": integer(18),
		"minItems": integer(19), "uniqueItems": boolean(20), "maxProperties": integer(21), "minProperties": integer(22),
		"required": strs(23), "enum": anythings(24), "type": str(25), "allOf": objects(26, schemaOrReference),
		"oneOf": objects(27, schemaOrReference), "anyOf": objects(28, schemaOrReference), "not": object(29, schema),
		"items": list(30, schemaOrReference), "properties": object(31, &message{named: entry(1, schemaOrReference)}),
		"additionalProperties": allowed(32, schemaOrReference), "default": scalar(33), "description": str(34), "format": str(35),
	}
	content := &message{named: entry(1, &message{extensions: 5, fields: map[string]field{
		"schema": object(1, schemaOrReference), "example": anything(2)}})}
	response := orReference(&message{extensions: 5, fields: map[string]field{
		"description": str(1), "content": object(3, content)}}, reference)
	body := orReference(&message{extensions: 4, fields: map[string]field{
		"description": str(1), "content": object(2, content), "required": boolean(3)}}, reference)
	parameter := orReference(&message{extensions: 14, fields: map[string]field{
		"name": str(1), "in": str(2), "description": str(3), "required": boolean(4), "deprecated": boolean(5),
		"allowEmptyValue": boolean(6), "style": str(7), "explode": boolean(8), "allowReserved": boolean(9),
		"schema": object(10, schemaOrReference), "example": anything(11), "content": object(13, content)}}, reference)
	operation := &message{extensions: 13, fields: map[string]field{
		"tags": strs(1), "summary": str(2), "description": str(3), "externalDocs": object(4, externalDocs),
		"operationId": str(5), "parameters": objects(6, parameter), "requestBody": object(7, body),
		"responses": object(8, &message{extensions: 3, named: entry(2, response), fields: map[string]field{
			"default": object(1, response)}}),
		"deprecated": boolean(10), "security": objects(11, securityRequirement()),
	}}
	path := &message{extensions: 14, fields: map[string]field{
		"$ref": str(1), "summary": str(2), "description": str(3), "get": object(4, operation), "put": object(5, operation),
		"post": object(6, operation), "delete": object(7, operation), "options": object(8, operation), "head": object(9, operation),
		"patch": object(10, operation), "trace": object(11, operation), "parameters": objects(13, parameter),
	}}
	securityScheme := orReference(&message{extensions: 9, fields: map[string]field{
		"type": str(1), "description": str(2), "name": str(3), "in": str(4), "scheme": str(5),
		"bearerFormat": str(6), "openIdConnectUrl": str(8)}}, reference)
	named := func(n protowire.Number, m *message) field {
		return object(n, &message{named: entry(1, m)})
	}
	return &message{extensions: 9, fields: map[string]field{
		"openapi": str(1),
		"info": object(2, &message{extensions: 7, fields: map[string]field{
			"title": str(1), "description": str(2), "version": str(6), "summary": str(8)}}),
		"paths": object(4, &message{extensions: 2, named: entry(1, path)}),
		"components": object(5, &message{extensions: 10, fields: map[string]field{
			"schemas": named(1, schemaOrReference), "responses": named(2, response), "parameters": named(3, parameter),
			"requestBodies": named(5, body), "securitySchemes": named(7, securityScheme)}}),
		"security":     objects(6, securityRequirement()),
		"externalDocs": object(8, externalDocs),
	}}
}
