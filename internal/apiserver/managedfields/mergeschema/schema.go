package mergeschema

import (
	"cmp"
	"slices"

	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// all is the only schema: values can only be compared if they have the same one.
var all = schema.Schema{Types: types}

// Schema returns the schema of all built-in types. It must not be changed.
func Schema() *schema.Schema { return &all }

// TypeName returns the name of a kind's type in the schema.
func TypeName(gvk apischema.GroupVersionKind) (string, bool) {
	name := lookup(gvk)
	if name == nil {
		return "", false
	}
	return *name, true
}

// Type returns the type of a kind, which converts objects to typed values. ok is false for kinds that are not built in.
func Type(gvk apischema.GroupVersionKind) (t typed.ParseableType, ok bool) {
	name := lookup(gvk)
	if name == nil {
		return typed.ParseableType{}, false
	}
	return typed.ParseableType{Schema: &all, TypeRef: schema.TypeRef{NamedType: name}}, true
}

// Kinds returns the built-in kinds that have a type.
func Kinds() []apischema.GroupVersionKind {
	list := make([]apischema.GroupVersionKind, len(kinds))
	for i, k := range kinds {
		list[i] = apischema.GroupVersionKind{Group: k.group, Version: k.version, Kind: k.kind}
	}
	return list
}

// kind is a row of the table of kinds, which is sorted by its first three columns.
type kind struct {
	group, version, kind string
	name                 *string
}

func lookup(gvk apischema.GroupVersionKind) *string {
	i, found := slices.BinarySearchFunc(kinds, gvk, func(k kind, gvk apischema.GroupVersionKind) int {
		return cmp.Or(cmp.Compare(k.group, gvk.Group), cmp.Compare(k.version, gvk.Version), cmp.Compare(k.kind, gvk.Kind))
	})
	if !found {
		return nil
	}
	return kinds[i].name
}

// The short names that the generated files use.
type (
	typeDef = schema.TypeDef
	atom    = schema.Atom
	object  = schema.Map
	field   = schema.StructField
	list    = schema.List
	ref     = schema.TypeRef

	relationship = schema.ElementRelationship
)

// The scalars that the types point to. They are variables because the compiler initializes pointers to variables statically, but not copies
// of variables.
var (
	numericScalar = schema.Numeric
	stringScalar  = schema.String
	booleanScalar = schema.Boolean
	untypedScalar = schema.Untyped
)
