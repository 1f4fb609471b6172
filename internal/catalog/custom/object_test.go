package custom_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/catalog"
	"skiff/internal/catalog/custom"
)

// definition returns an accepted definition with a version for each schema, of which the first is stored.
func definition(t testing.TB, schemas ...string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"}
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec:   apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Scope: apiextensionsv1.NamespaceScoped, Names: names},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{AcceptedNames: names}}
	for n, text := range schemas {
		props := &apiextensionsv1.JSONSchemaProps{}
		if err := json.Unmarshal([]byte(text), props); err != nil {
			t.Fatal(err)
		}
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: fmt.Sprintf("v%d", n+1), Served: true, Storage: n == 0,
			Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: props},
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}})
	}
	return crd
}

const widgetSchema = `{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer","default":3},"name":{"type":"string"}}},"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`

// decode returns an object of a version as a client sent it, with its defaults.
func decode(t testing.TB, info *catalog.Info, text string) *custom.Object {
	t.Helper()
	obj := info.New().(*custom.Object)
	if err := json.Unmarshal([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	info.Default(obj)
	return obj
}

func text(t testing.TB, obj any) string {
	t.Helper()
	encoded, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

// TestObject takes an object through its forms: what a client sends, the message in the cache, and the JSON in the store.
func TestObject(t *testing.T) {
	info := custom.NewResource(definition(t, widgetSchema), nil).StoredInfo()
	obj := decode(t, info, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","namespace":"ns","labels":{"x":"y"}},"spec":{"name":"<b>","other":1}}`)
	const want = `{"metadata":{"name":"a","namespace":"ns","labels":{"x":"y"}},"spec":{"name":"\u003cb\u003e","size":3}}`
	if got := text(t, obj); got != want {
		t.Errorf("sent\n%s\nwant\n%s", got, want)
	}
	message, err := obj.Marshal()
	if err != nil || len(message) != obj.Size() {
		t.Fatalf("%d bytes where Size says %d: %v", len(message), obj.Size(), err)
	}
	again := info.New().(*custom.Object)
	if err := again.Unmarshal(message); err != nil || text(t, again) != want {
		t.Errorf("from the message %s, %v", text(t, again), err)
	}
	if content, err := custom.ContentOf(message); err != nil || string(content) != `{"spec":{"name":"\u003cb\u003e","size":3}}` {
		t.Errorf("content %s, %v", content, err)
	}
	stored := info.New().(*custom.Object)
	if err := stored.UnmarshalStored([]byte(`{"kind":"Widget","apiVersion":"example.com/v1",` + want[1:])); err != nil {
		t.Fatal(err)
	}
	if stored.Generation != 1 { // very old objects have none
		t.Errorf("generation %d", stored.Generation)
	}
	stored.Generation = 0
	if got := text(t, stored); got != want {
		t.Errorf("from the store %s", got)
	}
	for cut := range message {
		_ = info.New().(*custom.Object).Unmarshal(message[:cut]) // whatever it says, it must not panic
	}
}

// TestObjectWithoutFields has nothing but metadata.
func TestObjectWithoutFields(t *testing.T) {
	info := custom.NewResource(definition(t, `{"type":"object"}`), nil).StoredInfo()
	obj := decode(t, info, `{"metadata":{"name":"a"}}`)
	message, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again := info.New().(*custom.Object)
	if err := again.Unmarshal(message); err != nil || text(t, again) != `{"metadata":{"name":"a"}}` || len(again.Fields()) != 0 {
		t.Errorf("%s, %v", text(t, again), err)
	}
}

// TestMalformedStoredMetadata reads what a server of long ago has stored: what is malformed in the metadata is dropped.
func TestMalformedStoredMetadata(t *testing.T) {
	obj := custom.NewResource(definition(t, widgetSchema), nil).StoredInfo().New().(*custom.Object)
	if err := obj.UnmarshalStored([]byte(`{"metadata":{"name":"a","labels":{"x":1,"y":"z"}},"spec":{}}`)); err != nil || obj.Name != "a" || len(obj.Labels) > 0 {
		t.Errorf("%+v, %v", obj.ObjectMeta, err)
	}
	if err := obj.UnmarshalJSON([]byte(`{"metadata":{"name":"a","labels":{"x":1}}}`)); err == nil {
		t.Error("a client may send malformed metadata")
	}
}

// TestUnmarshalStrict reports duplicate and unknown fields, wherever they are.
func TestUnmarshalStrict(t *testing.T) {
	obj := custom.NewResource(definition(t, widgetSchema), nil).StoredInfo().New().(*custom.Object)
	problems, err := obj.UnmarshalStrict([]byte(`{"metadata":{"name":"a","no":1},"spec":{"size":1,"size":2,"no":1},"no":1}`))
	var texts []string
	for _, p := range problems {
		texts = append(texts, p.Error())
	}
	slices.Sort(texts)
	if want := []string{`duplicate field "spec.size"`, `unknown field "metadata.no"`, `unknown field "no"`, `unknown field "spec.no"`}; err != nil || !slices.Equal(texts, want) {
		t.Errorf("%q, %v", texts, err)
	}
}

// TestCopiesAreIndependent changes an object and its copy: neither sees the other's change.
func TestCopiesAreIndependent(t *testing.T) {
	info := custom.NewResource(definition(t, widgetSchema), nil).StoredInfo()
	obj := decode(t, info, `{"metadata":{"name":"a"},"spec":{"size":1},"status":{"phase":"old"}}`)
	copied := obj.DeepCopyObject().(*custom.Object)
	info.ZeroStatus(copied)
	copied.Labels = map[string]string{"x": "y"}
	if obj.Fields()["status"] == nil || obj.Labels != nil || copied.Fields()["status"] != nil {
		t.Errorf("%s and %s", text(t, obj), text(t, copied))
	}
	root, err := copied.Root()
	if err != nil || root["kind"] != "Widget" || root["apiVersion"] != "example.com/v1" {
		t.Errorf("root %v, %v", root, err)
	}
}

// TestConcurrentReads reads one object from many goroutines, for the race detector.
func TestConcurrentReads(t *testing.T) {
	info := custom.NewResource(definition(t, widgetSchema), nil).StoredInfo()
	message, err := decode(t, info, `{"metadata":{"name":"a"},"spec":{"size":1}}`).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	obj := info.New().(*custom.Object)
	if err := obj.Unmarshal(message); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			if obj.Fields()["spec"] == nil || obj.Size() != len(message) || obj.DeepCopyObject() == nil || !strings.Contains(text(t, obj), `"size":1`) {
				t.Error("a reader misses something")
			}
		})
	}
	readers.Wait()
}

// TestEpochs says which schemas make the same of an object: those that are equal, over versions and over changes of a definition.
func TestEpochs(t *testing.T) {
	other := strings.Replace(widgetSchema, `"default":3`, `"default":4`, 1)
	r := custom.NewResource(definition(t, widgetSchema, widgetSchema, other), nil)
	epochs := func() (all []uint64) {
		for _, info := range r.Infos() {
			all = append(all, info.Epoch())
		}
		return all
	}
	before, infos := epochs(), r.Infos()
	if before[0] != before[1] || before[0] == before[2] {
		t.Errorf("epochs %v", before)
	}
	r.Update(definition(t, widgetSchema, other, other))
	if after := epochs(); after[0] != before[0] || after[1] != after[2] || after[2] != before[2] {
		t.Errorf("epochs %v, then %v", before, after)
	}
	// A declaration that was made before follows the definition.
	message, err := decode(t, infos[0], `{"metadata":{"name":"a"},"spec":{"name":"b"}}`).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	r.Update(definition(t, strings.Replace(widgetSchema, `"name":{"type":"string"}`, `"more":{"type":"boolean","default":true}`, 1)))
	epoch, normalized, err := infos[0].Normalized(t.Context(), [][]byte{message})
	if err != nil || epoch != infos[0].Epoch() {
		t.Fatal(epoch, err)
	}
	if content, _ := custom.ContentOf(normalized[0]); string(content) != `{"spec":{"more":true,"size":3}}` || infos[0].Epoch() == before[0] {
		t.Errorf("content %s of epoch %d", content, infos[0].Epoch())
	}
}

// TestGenerations says which changes raise the generation.
func TestGenerations(t *testing.T) {
	info := custom.NewResource(definition(t, widgetSchema), nil).StoredInfo()
	old := decode(t, info, `{"metadata":{"name":"a","namespace":"ns"},"spec":{"size":1},"status":{"phase":"old"}}`)
	old.Generation = 5
	for change, want := range map[string]int64{
		`{"metadata":{"name":"a","namespace":"ns"},"spec":{"size":1},"status":{"phase":"new"}}`:                5,
		`{"metadata":{"name":"a","namespace":"ns","labels":{"x":"y"}},"spec":{"size":1}}`:                      5,
		`{"metadata":{"name":"a","namespace":"ns"},"spec":{"size":2},"status":{"phase":"old"}}`:                6,
		`{"metadata":{"name":"a","namespace":"ns","generation":9},"status":{"phase":"old"}}`:                   6,
		`{"metadata":{"name":"a","namespace":"ns","generation":9},"spec":{"size":1},"status":{"phase":"old"}}`: 5,
	} {
		obj := decode(t, info, change)
		if errs := info.BeforeUpdate(t.Context(), obj, old, nil); len(errs) > 0 && !strings.Contains(errs.ToAggregate().Error(), "resourceVersion") {
			t.Errorf("%s: %v", change, errs)
		}
		if status := obj.Fields()["status"]; obj.Generation != want || fmt.Sprint(status) != "map[phase:old]" {
			t.Errorf("%s: generation %d, status %v", change, obj.Generation, status)
		}
	}
	status := decode(t, info, `{"metadata":{"name":"a","namespace":"ns","labels":{"x":"y"}},"spec":{"size":7},"status":{"phase":"new"}}`)
	info.BeforeUpdate(t.Context(), status, old, info.Status)
	if got := text(t, status); !strings.Contains(got, `"size":1`) || !strings.Contains(got, `"phase":"new"`) || strings.Contains(got, `"x":"y"`) || status.Generation != 5 {
		t.Errorf("status update made %s", got)
	}
}

// TestInfos checks what declarations say of a definition besides its names.
func TestInfos(t *testing.T) {
	crd := definition(t, widgetSchema, widgetSchema)
	crd.Spec.Versions[0].Deprecated = true
	r := custom.NewResource(crd, nil)
	infos := r.Infos()
	if len(infos) != 2 || infos[0].Deprecated != "example.com/v1 Widget is deprecated; use example.com/v2 Widget" || infos[1].Deprecated != "" {
		t.Errorf("%d versions, deprecated %q", len(infos), infos[0].Deprecated)
	}
	if infos[1].StorageVersion != "v1" || infos[0].StorageName != "example.com/widgets" || infos[0].CreateForbidden != "" {
		t.Errorf("%+v", infos[1])
	}
	cell := infos[0].Columns[1]
	obj := decode(t, infos[0], `{"metadata":{"name":"a"}}`)
	obj.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	if len(infos[0].Columns) != 2 || cell.Name != "Age" || cell.Cell(obj, time.Now()) != "60m" {
		t.Errorf("columns %+v, age %v", infos[0].Columns, cell.Cell(obj, time.Now()))
	}
	now := metav1.Now()
	crd.DeletionTimestamp = &now
	r.Update(crd)
	if info := r.Infos()[0]; info.CreateForbidden == "" || slices.Contains(info.DiscoveryVerbs, "create") || !slices.Contains(info.Verbs, "update") {
		t.Errorf("terminating: %q, %v", info.CreateForbidden, info.DiscoveryVerbs)
	}
	r.DropIdle() // and what was compiled is compiled again
	if errs := infos[0].Validate(decode(t, infos[0], `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","namespace":"ns"},"spec":{"size":"x"}}`)); len(errs) != 1 {
		t.Errorf("errors %v", errs)
	}
}
