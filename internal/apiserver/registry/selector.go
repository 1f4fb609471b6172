package registry

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"skiff/internal/cache"
	"skiff/internal/catalog"
)

// Selector picks items by namespace, labels and fields.
type Selector struct {
	Namespace string
	Name      string // set if a field selector requires one metadata.name
	// Uninitialized selects objects that still wait for their initializers, too.
	Uninitialized bool
	Reading       Reading
	labels        labels.Selector
	fields        []fieldTest
	// view decodes an item in the version that a view serves, whose fields the selector names; nil if objects are served as they are stored.
	view       func(*cache.Item) (catalog.Object, error)
	impossible bool
}

type fieldTest struct {
	field *catalog.FieldInfo
	index int // into Item.Fields, or cache.ByName, or cache.ByNamespace
	not   bool
	value string
}

// NewSelector parses the selectors that a client has sent.
func (r *Registry) NewSelector(info *catalog.Info, namespace, labelSelector, fieldSelector string) (Selector, error) {
	s := Selector{Namespace: namespace}
	if info.Stored != info {
		s.view = func(it *cache.Item) (catalog.Object, error) {
			obj, err := r.Decode(it)
			if err != nil {
				return nil, err
			}
			return info.FromStored(obj), nil
		}
	}
	if labelSelector != "" {
		parsed, err := labels.Parse(labelSelector)
		if err != nil {
			return s, apierrors.NewBadRequest(err.Error())
		}
		if !parsed.Empty() {
			s.labels = parsed
		}
	}
	if fieldSelector == "" {
		return s, nil
	}
	parsed, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	for _, req := range parsed.Requirements() {
		test := fieldTest{value: req.Value, not: req.Operator == selection.NotEquals}
		if test.index, err = fieldIndex(info, req.Field); err != nil {
			return s, err
		}
		if test.index >= 0 {
			test.field = &info.Fields[test.index]
		}
		if test.index == cache.ByName && !test.not {
			if s.Name != "" && s.Name != test.value {
				s.impossible = true
			}
			s.Name = test.value
		}
		s.fields = append(s.fields, test)
	}
	return s, nil
}

func fieldIndex(info *catalog.Info, name string) (int, error) {
	switch {
	case name == "metadata.name":
		return cache.ByName, nil
	case name == "metadata.namespace" && (info.Namespaced || !info.JSONOnly):
		return cache.ByNamespace, nil
	}
	for i, f := range info.Fields {
		if f.Name == name && name != "" { // a field that only another version of a custom resource has is nameless
			return i, nil
		}
	}
	if len(info.Fields) == 0 && !info.JSONOnly {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("%q is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", name))
	}
	return 0, apierrors.NewBadRequest("field label not supported: " + name)
}

// readsContent reports whether labels or fields of an object decide whether it is selected, and not its name and namespace alone.
func (s *Selector) readsContent() bool {
	if s.labels != nil {
		return true
	}
	return slices.ContainsFunc(s.fields, func(t fieldTest) bool { return t.index >= 0 })
}

// sees reports whether an item is initialized, or such objects are asked for, too.
func (s *Selector) sees(it *cache.Item) bool { return !it.Uninitialized || s.Uninitialized }

// mayMatch reports whether an item is selected by its name and namespace.
func (s *Selector) mayMatch(it *cache.Item) bool {
	if !s.sees(it) || s.Namespace != "" && it.Namespace != s.Namespace {
		return false
	}
	for _, t := range s.fields {
		if t.index < 0 && (it.Value(t.index) == t.value) == t.not {
			return false
		}
	}
	return true
}

// All reports whether everything in the namespace matches.
func (s *Selector) All() bool { return s.labels == nil && len(s.fields) == 0 }

// Matches reports whether an item is selected, its namespace included.
func (s *Selector) Matches(it *cache.Item) bool {
	if it == nil || !s.sees(it) || s.Namespace != "" && it.Namespace != s.Namespace {
		return false
	}
	if s.labels != nil && !s.labels.Matches(labels.Set(it.Labels)) {
		return false
	}
	for _, t := range s.fields {
		if (s.valueOf(t, it) == t.value) == t.not {
			return false
		}
	}
	return true
}

func (s *Selector) valueOf(t fieldTest, it *cache.Item) string {
	if t.index < 0 || s.view == nil {
		return it.Value(t.index)
	}
	obj, err := s.view(it)
	if err != nil {
		return ""
	}
	return t.field.Value(obj)
}

// topic returns what all selected objects have in common, by which the cache can wake only those who watch it; nil if there is nothing. byField says
// that the cache knows the fields of the version before a change.
func (s *Selector) topic(byField bool) *cache.Topic {
	if s.Name != "" {
		return &cache.Topic{Field: cache.ByName, Value: s.Name}
	}
	for _, t := range s.fields {
		if !t.not && (t.index < 0 || byField && s.view == nil) {
			return &cache.Topic{Field: t.index, Value: t.value}
		}
	}
	if s.Namespace != "" {
		return &cache.Topic{Field: cache.ByNamespace, Value: s.Namespace}
	}
	return nil
}

// prefix returns the prefix of the keys of all selected items within the resource.
func (s *Selector) prefix(info *catalog.Info) string {
	if info.Namespaced && s.Namespace != "" {
		return s.Namespace + "/"
	}
	return ""
}

// key returns the only key that can be selected; empty if there may be others.
func (s *Selector) key(info *catalog.Info) (string, bool) {
	switch {
	case s.Name == "" || strings.Contains(s.Name, "/"):
		return "", false
	case !info.Namespaced:
		return s.Name, true
	case s.Namespace != "":
		return s.Namespace + "/" + s.Name, true
	}
	return "", false
}
