package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// swagger is an OpenAPI v2 document, decoded as far as merging needs.
type swagger struct {
	Swagger             json.RawMessage            `json:"swagger"`
	Info                json.RawMessage            `json:"info"`
	Paths               map[string]json.RawMessage `json:"paths"`
	Definitions         map[string]json.RawMessage `json:"definitions"`
	Parameters          map[string]json.RawMessage `json:"parameters,omitempty"`
	SecurityDefinitions json.RawMessage            `json:"securityDefinitions,omitempty"`
	Security            json.RawMessage            `json:"security,omitempty"`
}

// mergeV2 adds the paths, definitions and parameters of each part to a document. Of equal names the first is kept, in the order
// of the parts' paths: the documents of custom resources contain common definitions such as ObjectMeta.
func mergeV2(base document, parts map[string]*document) (document, error) {
	merged, err := decodeV2(base)
	if err != nil {
		return document{}, err
	}
	for _, path := range slices.Sorted(maps.Keys(parts)) {
		part, err := decodeV2(*parts[path])
		if err != nil {
			return document{}, fmt.Errorf("the OpenAPI v2 document of %s: %w", path, err)
		}
		join(merged.Paths, part.Paths)
		join(merged.Definitions, part.Definitions)
		join(merged.Parameters, part.Parameters)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(merged); err != nil {
		return document{}, err
	}
	return compress(bytes.TrimSpace(out.Bytes())), nil
}

func join(into, from map[string]json.RawMessage) {
	for name, value := range from {
		if _, taken := into[name]; !taken {
			into[name] = value
		}
	}
}

func decodeV2(d document) (*swagger, error) {
	data, err := d.json()
	if err != nil {
		return nil, err
	}
	s := &swagger{}
	return s, json.Unmarshal(data, s)
}
