package managedfields

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/catalog"
)

// maxUpdaters is the number of managers of updates an object can have. Merging the oldest is left to the library.
const maxUpdaters = 10

// maxEntries bounds the entries handled here: each is compared with each. Few objects have a tenth of that.
const maxEntries = 64

// fastUpdate does what the library does for an update, without turning objects and field sets into trees. It returns false, and has changed
// nothing, if only the library can decide.
func (m *Manager) fastUpdate(live, obj catalog.Object, manager string) bool {
	kind := m.kind()
	x, y := reflect.ValueOf(live).Elem(), reflect.ValueOf(obj).Elem()
	if kind == nil || x.Type() != kind.object || y.Type() != kind.object {
		return false
	}
	entries := live.GetManagedFields()
	if sent := obj.GetManagedFields(); m.subresource == "" && sent != nil { // clients may set them
		entries = sent
		if len(sent) == 0 || len(sent) == 1 && sent[0] == (metav1.ManagedFieldsEntry{}) { // which asks to drop them
			return false
		}
	}
	if !m.supports(entries) || !utf8.ValidString(manager) {
		return false
	}
	var next []metav1.ManagedFieldsEntry
	if len(entries) > 0 || live.GetUID() == "" { // otherwise managed fields are not tracked for this object
		w := workers.Get().(*worker)
		defer w.release()
		w.comparison.run(kind.written, x, y)
		var decided bool
		if next, decided = m.applyChanges(w, kind, entries, cmp.Or(manager, "unknown")); !decided {
			return false
		}
	}
	obj.SetManagedFields(next)
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return true
}

// supports reports whether all entries are such as this server writes, in the version of this endpoint.
func (m *Manager) supports(entries []metav1.ManagedFieldsEntry) bool {
	if len(entries) > maxEntries {
		return false
	}
	for i := range entries {
		e := &entries[i]
		if e.Operation != metav1.ManagedFieldsOperationApply && e.Operation != metav1.ManagedFieldsOperationUpdate ||
			e.APIVersion != m.version || e.FieldsType != "FieldsV1" || !utf8.ValidString(e.Manager) || !utf8.ValidString(e.Subresource) {
			return false
		}
		for j := range entries[:i] {
			if d := &entries[j]; d.Manager == e.Manager && d.Operation == e.Operation && d.Subresource == e.Subresource {
				return false
			}
		}
	}
	return true
}

var noFields = []byte("{}")

// applyChanges returns the entries with the result of the comparison applied to them. decided is false if only the library can.
func (m *Manager) applyChanges(w *worker, kind *kind, entries []metav1.ManagedFieldsEntry, manager string) (_ []metav1.ManagedFieldsEntry, decided bool) {
	if w.comparison.needsLibrary {
		return nil, false
	}
	entries = append(make([]metav1.ManagedFieldsEntry, 0, len(entries)+1), entries...)
	writer := slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == m.subresource
	})
	if writer < 0 && w.comparison.anySet {
		writer = len(entries)
		entries = append(entries, metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: m.version,
			FieldsType: "FieldsV1", Subresource: m.subresource})
	}
	kept, updaters := entries[:0], 0
	for i, e := range entries {
		fields := noFields
		if e.FieldsV1 != nil {
			fields = e.FieldsV1.GetRawBytes()
		}
		fields, changed, ok := w.edit.run(&w.comparison, i == writer, kind.all, fields)
		if !ok {
			return nil, false
		}
		if changed {
			e.FieldsV1 = &metav1.FieldsV1{}
			e.FieldsV1.SetRawBytes(fields)
		}
		if i == writer && w.comparison.anySet {
			e.Time = &metav1.Time{Time: time.Now().UTC()}
		}
		if len(fields) == len(noFields) {
			continue
		}
		kept = append(kept, e)
		if e.Operation == metav1.ManagedFieldsOperationUpdate {
			updaters++
		}
	}
	if len(kept) == 0 {
		return nil, true
	}
	slices.SortFunc(kept, compareEntries)
	return kept, updaters <= maxUpdaters
}

// compareEntries orders entries: applied ones first, then by time, the oldest first.
func compareEntries(a, b metav1.ManagedFieldsEntry) int {
	return cmp.Or(cmp.Compare(a.Operation, b.Operation), cmp.Compare(seconds(a.Time), seconds(b.Time)), cmp.Compare(a.Manager, b.Manager),
		cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Subresource, b.Subresource))
}

func seconds(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

// worker holds the buffers of an update.
type worker struct {
	comparison comparison
	edit       edit
}

var workers = sync.Pool{New: func() any { return new(worker) }}

// maxRetained bounds the size of pooled buffers, in bytes of field sets and elements of comparisons.
const maxRetained = 64 << 10

func (w *worker) release() {
	w.edit.in = nil // it belongs to an object
	if cap(w.edit.out) <= maxRetained && cap(w.comparison.nodes) <= maxRetained/64 && cap(w.comparison.elements) <= maxRetained {
		workers.Put(w)
	}
}
