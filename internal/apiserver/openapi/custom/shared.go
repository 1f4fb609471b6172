package custom

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"skiff/internal/apiserver/openapi"
)

// The embedded documents from which shared definitions are taken: the smallest that have them all.
const (
	metaDocument  = "apis/coordination.k8s.io/v1"
	scaleDocument = "apis/apps/v1"
)

// addShared adds the named definitions, and those to which they refer, from the documents of built-in group versions. Names that are not
// there are left out: an example or a default of a schema may look like a reference.
func addShared(schemas map[string]json.RawMessage, names []string) error {
	documents := map[string]map[string]json.RawMessage{}
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		path := metaDocument
		if strings.HasPrefix(name, scaleModel) {
			path = scaleDocument
		}
		if _, done := schemas[name]; done {
			continue
		}
		if documents[path] == nil {
			var err error
			if documents[path], err = openapi.Schemas(path); err != nil {
				return err
			}
		}
		definition, ok := documents[path][name]
		if !ok {
			continue
		}
		if name == meta+"DeleteOptions" {
			var err error
			if definition, err = withEveryVersion(definition); err != nil {
				return err
			}
		}
		schemas[name] = definition
		names = append(names, references(string(definition))...)
	}
	return nil
}

// references returns the names of the definitions to which compact JSON refers.
func references(encoded string) []string {
	var names []string
	for _, rest := range strings.Split(encoded, `"$ref":"`+string(v3))[1:] {
		if name, _, ok := strings.Cut(rest, `"`); ok {
			names = append(names, name)
		}
	}
	return names
}

// withEveryVersion returns the definition of DeleteOptions for a document of custom resources: it lists the kind in all group versions that
// clients know, where a built-in document lists only its own.
func withEveryVersion(definition json.RawMessage) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(definition, &members); err != nil {
		return nil, fmt.Errorf("the definition of DeleteOptions: %w", err)
	}
	var err error
	if members[gvkExtension], err = clientVersions(); err != nil {
		return nil, err
	}
	return encode(members)
}

// otherGroups are the groups of the server's types that are not in the scheme of client-go's typed clients, from which upstream takes the
// shared definitions of custom resources.
var otherGroups = map[string]bool{"admission.k8s.io": true, "imagepolicy.k8s.io": true, "apiextensions.k8s.io": true, "apiregistration.k8s.io": true}

// clientVersions returns the kinds that DeleteOptions has in client-go's scheme, as JSON. They are read once, from the largest document.
var clientVersions = sync.OnceValues(func() (json.RawMessage, error) {
	definition, err := openapi.Definition(meta + "DeleteOptions")
	if err != nil {
		return nil, err
	}
	var all struct {
		Kinds []map[string]string `json:"x-kubernetes-group-version-kind"`
	}
	if err := json.Unmarshal(definition, &all); err != nil {
		return nil, fmt.Errorf("the definition of DeleteOptions: %w", err)
	}
	kinds := all.Kinds[:0]
	for _, kind := range all.Kinds {
		if !otherGroups[kind["group"]] {
			kinds = append(kinds, kind)
		}
	}
	return encode(kinds)
})
