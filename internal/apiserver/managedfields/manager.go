package managedfields

import (
	"context"
	"fmt"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"skiff/internal/catalog"
)

// Manager maintains the managed fields of one resource, written through one endpoint.
type Manager struct {
	gvk         schema.GroupVersionKind
	version     string
	subresource string
	fields      *managedfields.FieldManager
	new         func() catalog.Object
	kind        func() *kind
	in          func(context.Context) (*managedfields.FieldManager, error) // fields, with conversions in a context
	converts    func() bool                                                // whether a webhook converts between versions now; nil: never
}

// New returns the manager for writes through a resource's main endpoint (subresource "") or one of its subresources. related are the other
// resources that serve the same objects, whose versions managed fields may have.
func New(info *catalog.Info, subresource string, related []*catalog.Info) (*Manager, error) {
	gv := info.GVK.GroupVersion()
	infos := map[schema.GroupVersion]*catalog.Info{gv: info}
	for _, r := range related {
		infos[r.GVK.GroupVersion()] = r
	}
	reset := resetFields(info, subresource)
	in := func(ctx context.Context) (*managedfields.FieldManager, error) {
		versions := &converter{ctx, infos}
		return managedfields.NewDefaultFieldManager(types, versions, versions, versions, info.GVK, gv, subresource, resetFilter(gv, reset))
	}
	if info.JSONOnly {
		own := newCustomTypes(infos)
		in = func(ctx context.Context) (*managedfields.FieldManager, error) {
			versions := &converter{ctx, infos}
			return managedfields.NewDefaultCRDFieldManager(own, versions, versions, versions, info.GVK, gv, subresource, resetFilter(gv, reset))
		}
	}
	fm, err := in(context.Background())
	if err != nil {
		return nil, fmt.Errorf("failed to create the field manager of %s: %w", info.GVR, err)
	}
	return &Manager{gvk: info.GVK, version: gv.String(), subresource: subresource, fields: fm, in: in, converts: info.Converts,
		new: func() catalog.Object { return info.New().(catalog.Object) }, kind: sync.OnceValue(func() *kind {
			if info.JSONOnly {
				return nil // only the library knows how its fields are owned
			}
			return newKind(info, reset)
		})}, nil
}

// resetFields returns the dotted paths of fields that an endpoint ignores, so that no manager owns them through it.
func resetFields(info *catalog.Info, subresource string) []string {
	for _, e := range info.Stored.Edits {
		if e.Name == subresource {
			return e.ResetFields
		}
	}
	return info.Stored.ResetFields
}

func resetFilter(version schema.GroupVersion, reset []string) map[fieldpath.APIVersion]fieldpath.Filter {
	if len(reset) == 0 {
		return nil
	}
	set := fieldpath.NewSet()
	for _, p := range reset {
		var path fieldpath.Path
		for _, name := range strings.Split(p, ".") {
			path = append(path, fieldpath.PathElement{FieldName: &name})
		}
		set.Insert(path)
	}
	return map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(version.String()): fieldpath.NewExcludeSetFilter(set)}
}

// In returns the manager with conversions by webhook made in a context.
func (m *Manager) In(ctx context.Context) (*Manager, error) {
	if m.converts == nil || !m.converts() {
		return m, nil
	}
	fields, err := m.in(ctx)
	if err != nil {
		return nil, err
	}
	copied := *m
	copied.fields = fields
	return &copied, nil
}

// Create records that the manager has set every field of a new object.
func (m *Manager) Create(obj catalog.Object, manager string) { m.Update(m.new(), obj, manager) }

// Update records which fields the manager changes by replacing live with obj.
func (m *Manager) Update(live, obj catalog.Object, manager string) {
	if !m.fastUpdate(live, obj, manager) {
		m.libraryUpdate(live, obj, manager)
	}
}

// libraryUpdate updates the managed fields with the library.
func (m *Manager) libraryUpdate(live, obj catalog.Object, manager string) {
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

// withKind calls do while the objects have their kind set, which the library needs.
func (m *Manager) withKind(do func(), objs ...catalog.Object) {
	for _, o := range objs {
		o.GetObjectKind().SetGroupVersionKind(m.gvk)
	}
	do()
	for _, o := range objs {
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
}

// SameButTimes reports whether two lists of managed fields differ at most in their times.
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
