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

// maxUpdaters is how many managers of updates an object can have. To merge the oldest is left to the library.
const maxUpdaters = 10

// maxEntries bounds the managers that are looked at here: each is compared with each. Few objects have a tenth of that.
const maxEntries = 64

// quickUpdate does what the library does for an update, without turning objects and field sets into trees. It returns false, and has
// changed nothing, if it is not sure what that is.
func (m *Manager) quickUpdate(live, obj catalog.Object, manager string) bool {
	kind := m.kind()
	x, y := reflect.ValueOf(live).Elem(), reflect.ValueOf(obj).Elem()
	if kind == nil || x.Type() != kind.object || y.Type() != kind.object {
		return false
	}
	entries := live.GetManagedFields()
	if own := obj.GetManagedFields(); m.subresource == "" && own != nil { // clients may set them
		entries = own
		if len(own) == 0 || len(own) == 1 && own[0] == (metav1.ManagedFieldsEntry{}) { // which says to forget them
			return false
		}
	}
	if !m.knows(entries) || !utf8.ValidString(manager) {
		return false
	}
	var next []metav1.ManagedFieldsEntry
	if len(entries) > 0 || live.GetUID() == "" { // otherwise nothing is recorded of this object
		w := workers.Get().(*worker)
		defer w.release()
		w.comparison.run(kind.written, x, y)
		var sure bool
		if next, sure = m.carryOver(w, kind, entries, cmp.Or(manager, "unknown")); !sure {
			return false
		}
	}
	obj.SetManagedFields(next)
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return true
}

// knows tells whether all entries are such as this server writes, in the version of this endpoint.
func (m *Manager) knows(entries []metav1.ManagedFieldsEntry) bool {
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

// carryOver returns the entries as they are after what the comparison has found.
func (m *Manager) carryOver(w *worker, kind *kind, entries []metav1.ManagedFieldsEntry, manager string) (_ []metav1.ManagedFieldsEntry, sure bool) {
	if w.comparison.unsure {
		return nil, false
	}
	entries = append(make([]metav1.ManagedFieldsEntry, 0, len(entries)+1), entries...)
	writer := slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == m.subresource
	})
	if writer < 0 && w.comparison.set {
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
		if i == writer && w.comparison.set {
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

// compareEntries orders entries: applied ones first, then the oldest.
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

// worker is the room that an update needs.
type worker struct {
	comparison comparison
	edit       edit
}

var workers = sync.Pool{New: func() any { return new(worker) }}

// maxKept bounds the room, in bytes of field sets and elements of comparisons, that is kept for other updates.
const maxKept = 64 << 10

func (w *worker) release() {
	w.edit.in = nil // it is an object's
	if cap(w.edit.out) <= maxKept && cap(w.comparison.nodes) <= maxKept/64 && cap(w.comparison.elements) <= maxKept {
		workers.Put(w)
	}
}
