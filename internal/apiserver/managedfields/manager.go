package managedfields

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"skiff/internal/catalog"
)

// Manager maintains the managed fields of one resource, written through one endpoint.
type Manager struct {
	gvk    schema.GroupVersionKind
	fields *managedfields.FieldManager
	new    func() catalog.Object

	shaper *shaper
	shapes shapes
}

// New returns the manager for writes through a resource's main endpoint (subresource "") or one of its subresources. related are
// the other resources that serve the same objects, whose versions managed fields may speak of.
func New(info *catalog.Info, subresource string, related []*catalog.Info) (*Manager, error) {
	gv := info.GVK.GroupVersion()
	forms := &forms{infos: map[schema.GroupVersion]*catalog.Info{gv: info}}
	for _, r := range related {
		forms.infos[r.GVK.GroupVersion()] = r
	}
	fm, err := managedfields.NewDefaultFieldManager(types, forms, forms, forms, info.GVK, gv, subresource, resetFields(info, subresource))
	if err != nil {
		return nil, fmt.Errorf("managed fields of %s: %w", info.GVR, err)
	}
	return &Manager{gvk: info.GVK, fields: fm, shaper: newShaper(info), new: func() catalog.Object { return info.New().(catalog.Object) }}, nil
}

// resetFields are the fields that an endpoint ignores, so nobody comes to own them through it.
func resetFields(info *catalog.Info, subresource string) map[fieldpath.APIVersion]fieldpath.Filter {
	paths := info.Stored.ResetFields
	for _, e := range info.Stored.Edits {
		if e.Name == subresource {
			paths = e.ResetFields
		}
	}
	if len(paths) == 0 {
		return nil
	}
	set := fieldpath.NewSet()
	for _, p := range paths {
		var path fieldpath.Path
		for _, name := range strings.Split(p, ".") {
			path = append(path, fieldpath.PathElement{FieldName: &name})
		}
		set.Insert(path)
	}
	return map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(info.GVK.GroupVersion().String()): fieldpath.NewExcludeSetFilter(set)}
}

// Create records that manager has set every field of a new object.
func (m *Manager) Create(obj catalog.Object, manager string) {
	if len(obj.GetManagedFields()) > 0 {
		m.Update(m.new(), obj, manager) // the client has its own idea
		return
	}
	buf := shapeBuffers.Get().(*[]byte)
	defer shapeBuffers.Put(buf)
	shape, ok := m.shaper.shape((*buf)[:0], obj)
	if !ok {
		m.Update(m.new(), obj, manager)
		return
	}
	*buf = shape[:0]
	fields, known := m.shapes.find(shape)
	if !known {
		m.Update(m.new(), obj, manager)
		if entries := obj.GetManagedFields(); len(entries) == 1 {
			fields = entries[0].FieldsV1
		}
		m.shapes.keep(shape, fields)
		return
	}
	obj.SetManagedFields(nil)
	if fields != nil {
		now := metav1.Now().Rfc3339Copy()
		obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: cmp.Or(manager, "unknown"), Operation: metav1.ManagedFieldsOperationUpdate,
			APIVersion: m.gvk.GroupVersion().String(), Time: &now, FieldsType: "FieldsV1", FieldsV1: fields}})
	}
}

// Update records which fields manager changes by replacing live with obj.
func (m *Manager) Update(live, obj catalog.Object, manager string) {
	m.withKind(func() { m.fields.UpdateNoErrors(live, obj, manager) }, live, obj)
}

// Apply merges an applied configuration into the live object and records ownership.
func (m *Manager) Apply(live catalog.Object, applied *unstructured.Unstructured, manager string, force bool) (catalog.Object, error) {
	var merged catalog.Object
	var err error
	m.withKind(func() {
		var obj any
		obj, err = m.fields.Apply(live, applied, manager, force)
		if err == nil {
			merged = obj.(catalog.Object)
		}
	}, live)
	if err != nil {
		return nil, err
	}
	merged.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return merged, nil
}

// withKind lets the library see objects with their kind, which they do not carry otherwise.
func (m *Manager) withKind(do func(), objs ...catalog.Object) {
	for _, o := range objs {
		o.GetObjectKind().SetGroupVersionKind(m.gvk)
	}
	do()
	for _, o := range objs {
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
}

// SameButTimes reports whether two lists of managed fields differ in nothing but times.
func SameButTimes(a, b []metav1.ManagedFieldsEntry) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		if x.Manager != y.Manager || x.Operation != y.Operation || x.APIVersion != y.APIVersion || x.Subresource != y.Subresource || x.FieldsType != y.FieldsType {
			return false
		}
		if (x.FieldsV1 == nil) != (y.FieldsV1 == nil) || x.FieldsV1 != nil && !x.FieldsV1.Equal(*y.FieldsV1) {
			return false
		}
	}
	return true
}
