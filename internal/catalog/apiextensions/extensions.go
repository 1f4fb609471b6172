package apiextensions

import (
	"slices"

	internal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	listTypeName = "x-kubernetes-list-type"
	mapTypeName  = "x-kubernetes-map-type"
	keysName     = "x-kubernetes-list-map-keys"
)

// validateExtensions validates the extensions that say how lists and maps are merged, and what is not pruned.
func (w *walker) validateExtensions(s *internal.JSONSchemaProps, path *field.Path) {
	if keep := s.XPreserveUnknownFields; keep != nil && !*keep {
		w.add(field.Invalid(path.Child("x-kubernetes-preserve-unknown-fields"), false, "must be true or undefined"))
	}
	if t := s.XMapType; t != nil {
		w.requireType(s, path, "object", mapTypeName)
		if *t != "atomic" && *t != "granular" {
			w.add(field.NotSupported(path.Child(mapTypeName), *t, []string{"atomic", "granular"}))
		}
	}
	if t := s.XListType; t != nil {
		if w.requireType(s, path, "array", listTypeName) && hasGranularItems(s) && !w.lenient.granularSets() {
			w.refuseGranularItems(s, path)
		}
		if *t != "atomic" && *t != "set" && *t != "map" {
			w.add(field.NotSupported(path.Child(listTypeName), *t, []string{"atomic", "set", "map"}))
		}
	}
	w.validateMapList(s, path)
	if errs := listItemErrors(path, s); len(errs) > 0 && !w.lenient.badMapKeys() {
		w.add(errs...)
	}
}

// requireType reports whether a schema has the type that an extension needs, and adds an error if it does not.
func (w *walker) requireType(s *internal.JSONSchemaProps, path *field.Path, required, extension string) bool {
	detail := "must be " + required + " if " + extension + " is specified"
	switch s.Type {
	case required:
		return true
	case "":
		w.add(field.Required(path.Child("type"), detail))
	default:
		w.add(field.Invalid(path.Child("type"), s.Type, detail))
	}
	return false
}

// hasGranularItems reports whether a schema is a set whose items are merged, which makes them no set.
func hasGranularItems(s *internal.JSONSchemaProps) bool {
	if s.XListType == nil || *s.XListType != "set" || s.Items == nil || s.Items.Schema == nil {
		return false
	}
	switch item := s.Items.Schema; item.Type {
	case "array": // atomic unless it says otherwise
		return item.XListType != nil && *item.XListType != "atomic"
	case "object": // granular unless it says otherwise
		return item.XMapType == nil || *item.XMapType != "atomic"
	}
	return false
}

func (w *walker) refuseGranularItems(s *internal.JSONSchemaProps, path *field.Path) {
	item, name := s.Items.Schema, mapTypeName
	if item.Type == "array" {
		name = listTypeName
	}
	// Upstream shows the list type of objects too.
	w.add(field.Invalid(path.Child("items").Child(name), item.XListType, "must be atomic as item of a list with x-kubernetes-list-type=set"))
}

// validateMapList validates lists whose items have keys.
func (w *walker) validateMapList(s *internal.JSONSchemaProps, path *field.Path) {
	isMap := s.XListType != nil && *s.XListType == "map"
	if len(s.XListMapKeys) > 0 && !isMap {
		const detail = "must be map if x-kubernetes-list-map-keys is non-empty"
		if s.XListType == nil {
			w.add(field.Required(path.Child(listTypeName), detail))
		} else {
			w.add(field.Invalid(path.Child(listTypeName), *s.XListType, detail))
		}
	}
	if !isMap {
		return
	}
	if len(s.XListMapKeys) == 0 {
		w.add(field.Required(path.Child(keysName), "must not be empty if x-kubernetes-list-type is map"))
	}
	items := path.Child("items")
	switch {
	case s.Items == nil:
		w.add(field.Required(items, "must have a schema if x-kubernetes-list-type is map"))
	case s.Items.Schema == nil:
		w.add(field.Invalid(items, s.Items, "must only have a single schema if x-kubernetes-list-type is map"))
	case s.Items.Schema.Type != "object":
		w.add(field.Invalid(items.Child("type"), s.Items.Schema.Type, "must be object if parent array's x-kubernetes-list-type is map"))
	default:
		w.validateKeys(s, path)
	}
}

func (w *walker) validateKeys(s *internal.JSONSchemaProps, path *field.Path) {
	item := s.Items.Schema
	for i, key := range s.XListMapKeys {
		property, ok := item.Properties[key]
		if !ok {
			w.add(field.Invalid(path.Child(keysName), s.XListMapKeys, "entries must all be names of item properties"))
		} else if property.Type == "array" || property.Type == "object" {
			w.add(field.Invalid(path.Child("items").Child("properties").Key(key).Child("type"), item.Type,
				"must be a scalar type if parent array's x-kubernetes-list-type is map"))
		}
		if slices.Contains(s.XListMapKeys[:i], key) {
			w.add(field.Invalid(path.Child(keysName), s.XListMapKeys, "must not contain duplicate entries"))
		}
	}
}

// listItemErrors returns what is wrong with the items of a set, or of a list with keys: they must not be null, and must have their keys.
func listItemErrors(path *field.Path, s *internal.JSONSchemaProps) field.ErrorList {
	if s.Items == nil || s.Items.Schema == nil || s.XListType == nil || *s.XListType != "set" && *s.XListType != "map" {
		return nil
	}
	var errs field.ErrorList
	item := s.Items.Schema
	items := path.Child("items")
	if item.Nullable {
		errs = append(errs, field.Forbidden(items.Child("nullable"), "cannot be nullable when x-kubernetes-list-type is "+*s.XListType))
	}
	if *s.XListType == "set" {
		return errs
	}
	for _, key := range s.XListMapKeys {
		property, ok := item.Properties[key]
		if !ok {
			continue
		}
		const reason = "this property is in x-kubernetes-list-map-keys, so it "
		at := items.Child("properties").Key(key)
		if !slices.Contains(item.Required, key) && property.Default == nil {
			errs = append(errs, field.Required(at.Child("default"), reason+"must have a default or be a required property"))
		}
		if property.Nullable {
			errs = append(errs, field.Forbidden(at.Child("nullable"), reason+"cannot be nullable"))
		}
	}
	return errs
}
