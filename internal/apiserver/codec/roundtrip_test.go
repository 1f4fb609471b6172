package codec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"skiff/internal/catalog"
	"skiff/internal/catalog/all"
)

// TestRoundTrip decodes, stores and encodes one object of each kind in which every field is set, in JSON, YAML and protobuf: those in the test
// data of k8s.io/api, and for the kinds of upstream's extension servers our own. No field may get lost.

func TestRoundTrip(t *testing.T) {
	dir := testdata(t)
	kinds := servedKinds(t)
	for gvk, full := range kinds {
		name := cmp.Or(gvk.Group, "core") + "." + gvk.Version + "." + gvk.Kind
		t.Run(name, func(t *testing.T) {
			if extensionKinds()[gvk.Group] != nil {
				full.makeFull(t)
			} else {
				full.read(t, filepath.Join(dir, name))
			}
			full.compact(t)
			full.decode(t)
			full.encode(t)
			if full.info != nil && !full.info.Virtual {
				full.store(t)
			}
		})
	}
	t.Logf("%d kinds", len(kinds))
}

// read reads the encoded forms of the object from files.
func (f *filled) read(t *testing.T, name string) {
	t.Helper()
	for media, ending := range map[Media]string{JSON: ".json", YAML: ".yaml", Protobuf: ".pb"} {
		data, err := os.ReadFile(name + ending)
		if err != nil {
			t.Fatal(err)
		}
		f.encoded[media] = data
	}
}

// servedKinds returns the kinds of all resources and subresources.
func servedKinds(t *testing.T) map[schema.GroupVersionKind]*filled {
	kinds := map[schema.GroupVersionKind]*filled{autoscalingv1.SchemeGroupVersion.WithKind("Scale"): nil}
	for _, info := range all.Resources() {
		kinds[info.GVK] = &filled{gvk: info.GVK, info: info, new: info.New, encoded: map[Media][]byte{}}
	}
	for _, info := range all.Resources() {
		for _, sub := range info.Subresources {
			gvk := schema.GroupVersionKind{Group: info.GVK.Group, Version: info.GVK.Version, Kind: sub.Kind}
			if sub.Version != "" {
				gvk.Group, gvk.Version = sub.Group, sub.Version
			}
			if _, known := kinds[gvk]; !known {
				kinds[gvk] = nil
			}
		}
	}
	for gvk, full := range kinds {
		if full == nil {
			obj, err := scheme.Scheme.New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			kinds[gvk] = &filled{gvk: gvk, new: obj.DeepCopyObject, encoded: map[Media][]byte{}}
		}
	}
	return kinds
}

func testdata(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		t.Fatalf("looking for k8s.io/api: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "testdata", "HEAD")
}

// filled is an object with every field set.
type filled struct {
	gvk     schema.GroupVersionKind
	new     func() runtime.Object
	info    *catalog.Info // nil for kinds that only occur in requests
	encoded map[Media][]byte
	obj     runtime.Object // decoded; without kind and apiVersion, as the server keeps objects
}

// compact removes the indentation of the JSON, which would otherwise be kept in fields that hold raw JSON.
func (f *filled) compact(t *testing.T) {
	var b bytes.Buffer
	if err := json.Compact(&b, f.encoded[JSON]); err != nil {
		t.Fatal(err)
	}
	f.encoded[JSON] = b.Bytes()
}

// decode decodes the object from each encoding and compares the results.
func (f *filled) decode(t *testing.T) {
	for _, media := range []Media{JSON, YAML, Protobuf} {
		obj := f.new()
		warnings, err := Decode(f.encoded[media], media, f.gvk, obj, Strict)
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%s: %v %v", media, warnings, err)
		}
		if f.obj == nil {
			f.obj = obj
		}
		if diff := gocmp.Diff(f.obj, obj); diff != "" {
			t.Errorf("%s and %s differ:\n%s", JSON, media, diff)
		}
	}
}

// encode encodes the object in each encoding and compares with the test data.
func (f *filled) encode(t *testing.T) {
	for _, media := range []Media{JSON, YAML, Protobuf} {
		got, err := Single(f.obj, f.gvk, Accepted{Media: media})
		if err != nil {
			t.Fatalf("%s: %v", media, err)
		}
		f.same(t, "as "+media.String(), media, got)
	}
	got, err := Single(f.obj, f.gvk, Accepted{Pretty: true})
	if err != nil {
		t.Fatal(err)
	}
	f.same(t, "indented", JSON, got)
}

func (f *filled) same(t *testing.T, what string, media Media, got []byte) {
	t.Helper()
	want := f.encoded[media]
	if media == Protobuf {
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes differ from upstream's %d", what, len(got), len(want))
		}
		return
	}
	if diff := gocmp.Diff(generic(t, want), generic(t, got)); diff != "" {
		t.Errorf("%s:\n%s", what, diff)
	}
}

// generic decodes JSON or YAML without a Go type, so that no field is ignored.
func generic(t *testing.T, data []byte) (v any) {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(asJSON))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// store encodes the object for the store, parses it for the cache and decodes it again, in both storage forms.
func (f *filled) store(t *testing.T) {
	const revision, deletion = 1234567, 1234568
	for _, asJSON := range []bool{false, true} {
		codec := NewStored(f.info.Stored, asJSON)
		stored := f.info.ToStored(f.obj.DeepCopyObject().(catalog.Object))
		stored.SetResourceVersion("")
		value, message, err := codec.Encode(stored)
		if err != nil {
			t.Fatal(err)
		}
		if IsProtobuf(value) == (asJSON || f.info.StoredAsJSON) {
			t.Errorf("asJSON %t: stored %.20q", asJSON, value)
		}
		item, err := codec.Parse(value, revision)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(item.Message(), message) {
			t.Errorf("asJSON %t: the message changed between store and cache", asJSON)
		}
		written := codec.Item(stored, message, revision)
		if !reflect.DeepEqual(item, written) {
			t.Errorf("asJSON %t: the item read differs from the one written:\n%+v\n%+v", asJSON, item, written)
		}
		for _, version := range []int64{revision, deletion} {
			spliced := item
			if version == deletion {
				spliced = item.At(deletion)
			}
			f.restored(t, codec, spliced.Raw(), version)
		}
	}
}

// restored compares the cached object with the stored one: only the resourceVersion may differ, and defaults are added.
func (f *filled) restored(t *testing.T, codec *Stored, raw []byte, version int64) {
	t.Helper()
	want := f.obj.DeepCopyObject().(catalog.Object)
	want.SetResourceVersion(strconv.FormatInt(version, 10))
	got := f.info.Stored.New().(catalog.Object)
	if err := got.Unmarshal(raw); err != nil {
		t.Fatal(err)
	}
	completed, err := codec.Object(raw)
	if err != nil {
		t.Fatal(err)
	}
	withDefaults := got.DeepCopyObject()
	f.info.Stored.Default(withDefaults)
	if diff := gocmp.Diff(withDefaults, completed); diff != "" {
		t.Errorf("decoded by the cache:\n%s", diff)
	}
	served := f.info.FromStored(got)
	if f.info.Stored != f.info {
		// Another served version keeps fields that it lacks in annotations.
		annotations := maps.Clone(served.GetAnnotations())
		maps.DeleteFunc(annotations, func(name, _ string) bool { return strings.HasPrefix(name, "autoscaling.alpha.kubernetes.io/") })
		served.SetAnnotations(annotations)
	}
	if diff := gocmp.Diff(want, served); diff != "" {
		t.Errorf("after store and splice:\n%s", diff)
	}
	meta, err := Metadata(raw)
	if err != nil {
		t.Fatal(err)
	}
	wantMeta := f.info.ToStored(want).(metav1.ObjectMetaAccessor).GetObjectMeta()
	if diff := gocmp.Diff(wantMeta, metav1.Object(meta)); diff != "" {
		t.Errorf("metadata alone:\n%s", diff)
	}
}
