package managedfields

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"skiff/internal/catalog"
	"skiff/internal/catalog/all"
	"skiff/test/seed"
)

var histories = flag.Int("histories", 1, "how many random histories of each kind to compare with the library")

// writesPerHistory is the number of writes of an object in one history.
const writesPerHistory = 30

// TestUpdateEqualsLibrary compares the fast path with the library, entry for entry: over histories of objects of every kind, through every
// endpoint and version, by many managers, with applies and with managed fields that clients changed. Time passes only when the history says so.
func TestUpdateEqualsLibrary(t *testing.T) {
	seed := seed.New(t)
	quick, slow := 0, 0
	for k, info := range all.Resources() {
		data, err := os.ReadFile(testdata(t, info.GVK))
		if info.Virtual || err != nil {
			continue
		}
		t.Run(info.GVK.GroupVersion().String()+" "+info.GVK.Kind, func(t *testing.T) {
			writers := writersOf(t, info)
			for i := range *histories {
				synctest.Test(t, func(t *testing.T) {
					h := &history{Rand: rand.New(rand.NewPCG(seed, uint64(k)<<32+uint64(i))), info: info, data: data, writers: writers}
					h.run(t)
					quick, slow = quick+h.quick, slow+h.slow
				})
			}
		})
	}
	t.Logf("%d updates took the fast path, %d the library", quick, slow)
	if quick < 2*slow {
		t.Error("too few updates took the fast path")
	}
}

// writer writes objects through one endpoint of one version.
type writer struct {
	info    *catalog.Info
	manager *Manager
}

func writersOf(t *testing.T, info *catalog.Info) []writer {
	var related []*catalog.Info
	for _, other := range all.Resources() {
		if other != info && other.Stored == info.Stored {
			related = append(related, other)
		}
	}
	var writers []writer
	add := func(info *catalog.Info, subresource string, related []*catalog.Info) {
		m, err := New(info, subresource, related)
		if err != nil {
			t.Fatal(err)
		}
		writers = append(writers, writer{info, m})
	}
	add(info, "", related)
	for _, e := range info.Stored.Edits {
		add(info, e.Name, related)
	}
	for _, other := range related {
		add(other, "", append([]*catalog.Info{info}, related...))
	}
	return writers
}

// history is a sequence of writes to one object.
type history struct {
	*rand.Rand
	info        *catalog.Info
	data        []byte // an object with every field
	writers     []writer
	crowd       bool           // every manager owns a field, so that the managers become too many
	live        catalog.Object // in the form of info
	quick, slow int
}

func (h *history) run(t *testing.T) {
	h.crowd = h.IntN(4) == 0
	for range writesPerHistory {
		time.Sleep(time.Duration(h.IntN(3)) * 700 * time.Millisecond)
		switch {
		case h.live == nil || h.IntN(writesPerHistory) == 0:
			h.create(t)
		case h.IntN(8) == 0:
			h.apply(t)
		default:
			h.update(t)
		}
		if t.Failed() {
			return
		}
	}
}

func (h *history) create(t *testing.T) {
	obj := decode(t, h.info, vary(h.Rand, h.data))
	if h.live != nil && h.IntN(2) == 0 {
		obj.SetManagedFields(h.live.GetManagedFields())
		h.tamper(obj)
	}
	want := obj.DeepCopyObject().(catalog.Object)
	m, name := h.writers[0].manager, h.name()
	m.libraryUpdate(h.info.New().(catalog.Object), want, name)
	m.Create(obj, name)
	h.compare(t, "create by "+name, nil, want, obj)
	obj.SetUID("uid")
	h.live = stored(t, h.Rand, h.info, obj)
}

func (h *history) apply(t *testing.T) {
	w := h.writers[0]
	if h.IntN(3) == 0 {
		w = h.writers[h.IntN(len(h.writers))]
		if w.info != h.info {
			return
		}
	}
	obj := decode(t, h.info, vary(h.Rand, h.data))
	obj.GetObjectKind().SetGroupVersionKind(h.info.GVK)
	content := map[string]any{}
	b, err := json.Marshal(obj)
	if err == nil {
		err = json.Unmarshal(b, &content)
	}
	if err != nil {
		t.Fatal(err)
	}
	merged, err := w.manager.Apply(h.live.DeepCopyObject().(catalog.Object), &unstructured.Unstructured{Object: content}, h.name(), true)
	if err != nil {
		return // for example because of a duplicate item
	}
	merged.SetUID("uid")
	h.live = stored(t, h.Rand, h.info, merged)
}

func (h *history) update(t *testing.T) {
	w := h.writers[h.IntN(len(h.writers))]
	live := w.info.FromStored(h.info.ToStored(h.live.DeepCopyObject().(catalog.Object)))
	name := h.name()
	obj := live
	if !h.crowd || h.IntN(4) == 0 {
		obj = h.edit(t, w.info, live)
	}
	if h.crowd || h.IntN(3) == 0 {
		annotations := maps.Clone(obj.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["example.com/"+name] = strconv.Itoa(h.IntN(3))
		obj = obj.DeepCopyObject().(catalog.Object)
		obj.SetAnnotations(annotations)
	}
	tampered := ""
	if h.IntN(8) == 0 {
		obj = obj.DeepCopyObject().(catalog.Object)
		tampered = h.tamper(obj)
	}
	want, got, before := obj.DeepCopyObject().(catalog.Object), obj.DeepCopyObject().(catalog.Object), text(t, live)
	w.manager.libraryUpdate(live.DeepCopyObject().(catalog.Object), want, name)
	if w.manager.fastUpdate(live, got, name) {
		h.quick++
	} else {
		h.slow++
		w.manager.libraryUpdate(live, got, name)
	}
	if before != text(t, live) {
		t.Errorf("the live object has changed")
	}
	h.compare(t, fmt.Sprintf("update of %s %q by %s %s", w.manager.version, w.manager.subresource, name, tampered), live, want, got)
	if tampered == "" || h.IntN(4) == 0 {
		h.live = stored(t, h.Rand, h.info, h.info.FromStored(w.info.ToStored(got)))
	}
}

func (h *history) compare(t *testing.T, what string, live, want, got catalog.Object) {
	t.Helper()
	if w, g := text(t, want), text(t, got); w != g {
		t.Errorf("%s: managed fields differ\nlibrary:   %s\nfast path: %s", what, show(want), show(got))
		if live != nil {
			t.Errorf("live: %s\nnew: %s", text(t, live), g)
		} else {
			t.Errorf("new: %s", g)
		}
	}
	for i, e := range got.GetManagedFields() {
		if i >= len(want.GetManagedFields()) {
			break
		}
		if want := want.GetManagedFields()[i]; !e.Time.Equal(want.Time) {
			t.Errorf("%s: the time of %s is %v, want %v", what, e.Manager, e.Time, want.Time)
		}
	}
	if k := got.GetObjectKind().GroupVersionKind(); !k.Empty() {
		t.Errorf("%s: the object has the kind %s", what, k)
	}
}

func text(t *testing.T, obj catalog.Object) string {
	t.Helper()
	b, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// stored returns an object as it is read back from the store, from JSON or protobuf.
func stored(t *testing.T, random *rand.Rand, info *catalog.Info, obj catalog.Object) catalog.Object {
	t.Helper()
	out := info.New().(catalog.Object)
	var b []byte
	var err error
	if random.IntN(2) == 0 {
		if b, err = obj.Marshal(); err == nil {
			err = out.Unmarshal(b)
		}
	} else if b, err = json.Marshal(obj); err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Managers and the live object are shared by concurrent requests.
func TestConcurrentUpdates(t *testing.T) {
	info := kindOf(t, "Pod")
	m, err := New(info, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	live := decode(t, info, []byte(benchPod))
	m.Create(live, "creator")
	live.SetUID("uid")
	want := show(live) + `{"manager":"writer","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1",` +
		`"fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:a":{}}}}}` + "\n"
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for range 50 {
				obj := live.DeepCopyObject().(catalog.Object)
				obj.SetAnnotations(map[string]string{"a": "b"})
				if !m.fastUpdate(live, obj, "writer") || show(obj) != want {
					t.Errorf("got %s, want %s", show(obj), want)
					return
				}
			}
		})
	}
	writers.Wait()
}

// Keys of maps are visited in random order.
func TestManyKeys(t *testing.T) {
	info := kindOf(t, "ConfigMap")
	m, err := New(info, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	made := &corev1.ConfigMap{Data: map[string]string{}}
	for i := range 2000 {
		made.Data[strconv.Itoa(i)] = "a"
	}
	want, got := made.DeepCopy(), made.DeepCopy()
	m.libraryUpdate(&corev1.ConfigMap{}, want, "creator")
	if !m.fastUpdate(&corev1.ConfigMap{}, got, "creator") || show(got) != show(want) {
		t.Errorf("got %s, want %s", show(got), show(want))
	}
}

// name returns the name of a manager. There are more than an object may have, and some write more often.
func (h *history) name() string {
	if !h.crowd && h.IntN(2) == 0 {
		return []string{"kubectl", "kubelet", "kube-controller-manager", "", "ancient-changes"}[h.IntN(5)]
	}
	return fmt.Sprintf("manager-%d", h.IntN(20))
}

// tamper changes managed fields as a client can.
func (h *history) tamper(obj catalog.Object) string {
	entries := obj.GetManagedFields()
	if len(entries) == 0 {
		return ""
	}
	e := &entries[h.IntN(len(entries))]
	raw := func(s string) { e.FieldsV1 = metav1.NewFieldsV1(s) }
	switch h.IntN(16) {
	case 0:
		obj.SetManagedFields(nil)
		return "without managed fields"
	case 1:
		obj.SetManagedFields([]metav1.ManagedFieldsEntry{})
		return "with an empty list"
	case 2:
		obj.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
		return "with an empty entry"
	case 3:
		e.Operation = "Patch"
	case 4:
		e.APIVersion = []string{"", "v0", "example.com/v1"}[h.IntN(3)]
	case 5:
		e.FieldsType = ""
	case 6:
		e.FieldsV1 = nil
	case 7:
		raw([]string{"", "{}", "null", "[]", `{"f:metadata":{}}`, `{".":{}}`, `{"f:spec":{".":{}}}`, `{`, `{}{}`, `{"f:spec":{`}[h.IntN(10)])
	case 8:
		raw(`{"f:status":{},"f:spec":{},"f:metadata":{"f:name":{},"f:labels":{"f:b":{},"f:a":{}}}}`)
	case 9:
		raw(`{"f:metadata":{"f:labels":{"f:a":{},"f:b":{}},"f:name":{}},"f:unknown":{"f:a":{}}}`)
	case 10:
		raw(`{ "f:metadata": {"f:labels":{"f:app":{}}} }`)
	case 11:
		raw(`{"f:metadata":{"f:annotations":{"f:a":{"f:b":{}},"f:\u0062":{}},"f:finalizers":{".":{},"v:1":{},"v:\"a\"":{}}}}`)
	case 12:
		raw(`{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"a\"}":{},"k:{\"uid\":\"b\"}":{".":{},"f:name":{}},"k:{\"uid\": \"c\"}":{},` +
			`"k:{\"name\":1,\"uid\":01}":{}}}}`)
	case 13:
		entries = append(entries, *e)
		entries[len(entries)-1].Time = nil
		obj.SetManagedFields(entries)
	case 14:
		e.Manager = "a\xffb"
	case 15:
		e.Time = nil
	}
	return fmt.Sprintf("having tampered with %v", *e)
}
