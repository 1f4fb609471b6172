package managedfields

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"skiff/internal/catalog"
	"skiff/internal/catalog/all"
	"skiff/test/seed"
)

// Elements must have the library's order: sets are written in it.
func TestElementsHaveTheLibrarysOrder(t *testing.T) {
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 0))
	scalar := func() any {
		if random.IntN(2) == 0 {
			return []int{-12, -2, 0, 1, 2, 10, 80, 443, 8080, 1 << 30}[random.IntN(10)]
		}
		return []string{"", "TCP", "UDP", "a", "A", "a-b", "ab", "a b", "a,b", "a:b", "10", "~", "{}", "kubernetes.io/x"}[random.IntN(14)]
	}
	element := func() fieldpath.PathElement {
		switch random.IntN(3) {
		case 0:
			return fieldpath.FieldNameElement(fmt.Sprint(scalar()))
		case 1:
			return fieldpath.ValueElement(value.NewValueInterface(scalar()))
		}
		fields := value.FieldList{{Name: "port", Value: value.NewValueInterface(scalar())}}
		for _, name := range []string{"name", "p", "protocol"} {
			if random.IntN(2) == 0 {
				fields = append(fields, value.Field{Name: name, Value: value.NewValueInterface(scalar())})
			}
		}
		fields.Sort()
		return fieldpath.KeyElement(fields...)
	}
	for range 20000 {
		a, b := element(), element()
		x, y := written(t, a), written(t, b)
		if !valid(x) {
			t.Fatalf("%s is not valid", x)
		}
		if got, want := cmp.Compare(compareElements(x, y), 0), cmp.Compare(a.Compare(b), 0); got != want {
			t.Fatalf("%s and %s compare as %d, want %d", x, y, got, want)
		}
	}
}

// written returns an element as it is in managed fields.
func written(t *testing.T, e fieldpath.PathElement) []byte {
	t.Helper()
	s, err := fieldpath.SerializePathElement(e)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return b[1 : len(b)-1]
}

const podFields = `{"f:metadata":{"f:annotations":{".":{},"f:a":{},"f:b":{}},"f:finalizers":{".":{},"v:\"a\"":{},"v:\"b\"":{}},"f:labels":{"f:app":{}},` +
	`"f:ownerReferences":{".":{},"k:{\"uid\":\"1\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{},"f:name":{},` +
	`"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}},` +
	`"k:{\"containerPort\":443,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}},"f:resources":{"f:limits":{"f:cpu":{}}}}},"f:hostNetwork":{},"f:tolerations":{}}}`

func kindOf(t testing.TB, kind string) *catalog.Info {
	t.Helper()
	for _, info := range all.Resources() {
		if info.GVK.Kind == kind && info.Stored == info {
			return info
		}
	}
	t.Fatalf("no kind %s", kind)
	return nil
}

// Only text as the library would write it is accepted, since unchanged text is copied.
func TestOnlyTheLibrarysTextIsAccepted(t *testing.T) {
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 0))
	info := kindOf(t, "Pod")
	pod := newKind(info, nil)
	obj := info.New()
	obj.GetObjectKind().SetGroupVersionKind(info.GVK)
	empty, err := types.ObjectToTyped(obj)
	if err != nil {
		t.Fatal(err)
	}
	c, e := comparison{nodes: make([]node, 2)}, edit{}
	read := func(text []byte) bool {
		out, changed, ok := e.run(&c, false, pod.all, text)
		if ok && (changed || !bytes.Equal(out, text)) {
			t.Fatalf("%s has become %s", text, out)
		}
		return ok
	}
	if !read([]byte(podFields)) || !read([]byte(`{}`)) {
		t.Fatal("the library's text is refused")
	}
	const alphabet = `{}":,.fkvi\a1-0 `
	accepted := 0
	for range 50000 {
		text := []byte(podFields)
		for range 1 + random.IntN(2) {
			i := random.IntN(len(text))
			switch random.IntN(4) {
			case 0:
				text[i] = alphabet[random.IntN(len(alphabet))]
			case 1:
				text = append(text[:i], text[i+1:]...)
			case 2:
				text = append(text[:i], append([]byte{alphabet[random.IntN(len(alphabet))]}, text[i:]...)...)
			case 3:
				j := min(i+random.IntN(60), len(text))
				text = append(text[:i], text[j:]...)
			}
		}
		if !read(text) {
			continue
		}
		accepted++
		var s fieldpath.Set
		if err := s.FromJSON(bytes.NewReader(text)); err != nil {
			t.Fatalf("%s is read, which is no set: %v", text, err)
		}
		if again, err := s.ToJSON(); err != nil || !bytes.Equal(again, text) {
			t.Fatalf("%s is read, which the library writes as %s (%v)", text, again, err)
		}
		if other, err := typed.ReconcileFieldSetWithSchema(&s, empty); err != nil || other != nil {
			t.Fatalf("%s is read, of which the schema makes %s (%v)", text, other, err)
		}
	}
	if accepted < 100 {
		t.Errorf("only %d variants were read", accepted)
	}
}

// TestEdit shows edits by example, and compares them with the library.
func TestEdit(t *testing.T) {
	info := kindOf(t, "Pod")
	pod := newKind(info, nil)
	manager, err := New(info, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	entry := func(manager, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(fields)}
	}
	for _, test := range []struct {
		name, live, obj, fields, owner, other string
	}{
		{"an added label is the writer's",
			`{}`, `{"metadata":{"labels":{"b":"1"}}}`,
			`{"f:metadata":{"f:labels":{"f:a":{},"f:c":{}}}}`,
			`{"f:metadata":{"f:labels":{".":{},"f:a":{},"f:b":{},"f:c":{}}}}`,
			`{"f:metadata":{"f:labels":{"f:a":{},"f:c":{}}}}`},
		{"a changed value changes hands",
			`{"spec":{"nodeName":"a"}}`, `{"spec":{"nodeName":"b"}}`,
			`{"f:spec":{"f:nodeName":{}}}`,
			`{"f:spec":{"f:nodeName":{}}}`,
			`{}`},
		{"a removed item and its fields have no owner",
			`{"spec":{"containers":[{"name":"a","image":"x"},{"name":"b"}]}}`, `{"spec":{"containers":[{"name":"b"}]}}`,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:name":{}},"k:{\"name\":\"b\"}":{".":{},"f:name":{}}}}}`,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"b\"}":{".":{},"f:name":{}}}}}`,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"b\"}":{".":{},"f:name":{}}}}}`},
		{"items go by key, whatever their order",
			`{"spec":{"containers":[{"name":"a","image":"x"},{"name":"b"}]}}`, `{"spec":{"containers":[{"name":"b"},{"name":"a","image":"y"}]}}`,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:name":{}}}}}`,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:name":{}}}}}`,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}}}}}`},
		{"ports are in the order of numbers",
			`{"spec":{"containers":[{"name":"a","ports":[{"containerPort":9},{"containerPort":100}]}]}}`,
			`{"spec":{"containers":[{"name":"a","ports":[{"containerPort":9},{"containerPort":100},{"containerPort":80,"protocol":"UDP"}]}]}}`,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{"f:ports":{"k:{\"containerPort\":9,\"protocol\":\"TCP\"}":{},` +
				`"k:{\"containerPort\":100,\"protocol\":\"TCP\"}":{}}}}}}`,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{"f:ports":{"k:{\"containerPort\":9,\"protocol\":\"TCP\"}":{},` +
				`"k:{\"containerPort\":80,\"protocol\":\"UDP\"}":{".":{},"f:containerPort":{},"f:protocol":{}},"k:{\"containerPort\":100,\"protocol\":\"TCP\"}":{}}}}}}`,
			`{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{"f:ports":{"k:{\"containerPort\":9,\"protocol\":\"TCP\"}":{},` +
				`"k:{\"containerPort\":100,\"protocol\":\"TCP\"}":{}}}}}}`},
		{"a list that is replaced as a whole is owned as a whole",
			`{"spec":{"tolerations":[{"key":"a"}]}}`, `{"spec":{"tolerations":[{"key":"a"},{"key":"b"}]}}`,
			`{"f:spec":{"f:tolerations":{}}}`,
			`{"f:spec":{"f:tolerations":{}}}`,
			`{}`},
		{"an empty list is not the same as none",
			`{"spec":{"containers":null}}`, `{"spec":{"containers":[]}}`,
			`{"f:spec":{"f:containers":{},"f:nodeName":{}}}`,
			`{"f:spec":{"f:containers":{},"f:nodeName":{}}}`,
			`{"f:spec":{"f:nodeName":{}}}`},
		{"an item in a list that was null does not make the list new",
			`{"spec":{"containers":null}}`, `{"spec":{"containers":[{"name":"a"}]}}`,
			`{"f:spec":{"f:containers":{},"f:nodeName":{}}}`,
			`{"f:spec":{"f:containers":{".":{},"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:resources":{}}},"f:nodeName":{}}}`,
			`{"f:spec":{"f:containers":{},"f:nodeName":{}}}`},
		{"the same quantity in other words is no change",
			`{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1000m"}}}]}}`, `{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1"}}}]}}`,
			`{"f:spec":{"f:nodeName":{}}}`,
			`{"f:spec":{"f:nodeName":{}}}`,
			`{"f:spec":{"f:nodeName":{}}}`},
		{"the last member of a set takes it along",
			`{"metadata":{"finalizers":["a","b"]}}`, `{"metadata":{"finalizers":["b"]}}`,
			`{"f:metadata":{"f:finalizers":{"v:\"a\"":{}}}}`,
			`{}`,
			`{}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			live, obj := decode(t, info, []byte(test.live)), decode(t, info, []byte(test.obj))
			var c comparison
			c.run(pod.written, reflect.ValueOf(live).Elem(), reflect.ValueOf(obj).Elem())
			for _, owner := range []bool{true, false} {
				want := test.other
				if owner {
					want = test.owner
				}
				var e edit
				out, changed, ok := e.run(&c, owner, pod.all, []byte(test.fields))
				if !ok || string(out) != want || changed != (want != test.fields) {
					t.Errorf("owner=%v: %s (ok %v, changed %v), want %s", owner, out, ok, changed, want)
				}
			}
			obj.SetManagedFields([]metav1.ManagedFieldsEntry{entry("owner", test.fields), entry("other", test.fields)})
			manager.libraryUpdate(live, obj, "owner")
			got := map[string]string{"owner": `{}`, "other": `{}`}
			for _, e := range obj.GetManagedFields() {
				got[e.Manager] = e.FieldsV1.GetRawString()
			}
			if got["owner"] != test.owner || got["other"] != test.other {
				t.Errorf("the library returns %v", got)
			}
		})
	}
}
