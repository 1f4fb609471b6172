package apiserver_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	gomaps "maps"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"

	"skiff/internal/apiserver"
	"skiff/internal/catalog"
	"skiff/internal/catalog/all"
)

// TestFullObjects takes objects of every kind, with every field set that a valid one can have (several objects where fields exclude each
// other; see testdata/objects), through create, get, list, watch, update and delete in every encoding. No field may be lost or changed on
// the way.
func TestFullObjects(t *testing.T) {
	s := start(t, func(o *apiserver.Options) { // nobody adds to the objects, or misses what they refer to
		o.NoFairness = true // nor writes the status of FlowSchemas
		o.DisableAdmission = append(o.DisableAdmission, "RuntimeClass", "StorageObjectInUseProtection", "TaintNodesByCondition")
	})
	objects := fullObjects(t)
	for _, info := range all.Resources() {
		if info.Virtual {
			continue
		}
		if len(objects[info.GVK]) == 0 {
			t.Errorf("there is no object of %s in testdata/objects", info.GVK)
		}
		if kind := info.GVK.Kind; kind == "CustomResourceDefinition" || kind == "APIService" { // the server itself writes their status: see TestCustomResource, package aggregation, and codec.TestFullObjects
			delete(objects, info.GVK)
			continue
		}
		for _, want := range objects[info.GVK] {
			f := &objectTest{info: info, want: want}
			t.Run(info.GVK.GroupVersion().String()+" "+info.GVK.Kind+" "+f.name(), func(t *testing.T) {
				f.server = &server{t, s.api, s.store}
				f.run(t)
			})
		}
		delete(objects, info.GVK)
	}
	for gvk := range objects {
		t.Errorf("there is an object of %s, which is not served", gvk)
	}
}

// objectTest takes one object through all verbs.
type objectTest struct {
	*server
	info *catalog.Info
	want object // what was asked for
	got  object // what is there
}

const yamlType = "application/yaml"

func (f *objectTest) run(t *testing.T) {
	f.dryRuns(t)
	f.create(t)
	f.reads(t)
	f.updates(t)
	f.views(t)
	f.watches(t)
}

// send sends a request of a client with a name, which becomes the manager of its fields.
func (f *objectTest) send(method, path string, body any, headers ...string) answer {
	f.t.Helper()
	return f.server.send(method, path, body, append(headers, "User-Agent", "full/1")...)
}

// path is that of the object or of a part of it.
func (f *objectTest) path(parts ...string) string { return pathTo(f.info, f.name(), parts...) }

func pathTo(info *catalog.Info, name string, parts ...string) string {
	path := collection(info) + "/" + name
	for _, part := range parts {
		path += "/" + part
	}
	return path
}

func collection(info *catalog.Info) string {
	path := "/apis/" + info.GVR.Group + "/" + info.GVR.Version
	if info.GVR.Group == "" {
		path = "/api/" + info.GVR.Version
	}
	if info.Namespaced {
		path += "/namespaces/default"
	}
	return path + "/" + info.GVR.Resource
}

func (f *objectTest) name() string { return metadata(f.want)["name"].(string) }

func metadata(o object) object { return o["metadata"].(object) }

// dryRuns creates the object without keeping it, sent and answered in each encoding.
func (f *objectTest) dryRuns(t *testing.T) {
	var first object
	for _, sent := range encodings {
		for _, accept := range encodings {
			got := f.decode(t, accept, f.send("POST", collection(f.info)+"?dryRun=All", f.encode(t, sent, f.begin()), "Content-Type", sent, "Accept", accept).ok().Body)
			got = f.blur(t, got)
			if first == nil {
				first = got
			}
			f.equal(t, "create in "+sent+", answered in "+accept, got, first)
		}
	}
}

// blur makes all times and all uids alike, as they are different each time.
func (f *objectTest) blur(t *testing.T, o object) object {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return f.decode(t, encodings[0], anyUUID.ReplaceAll(anyTime.ReplaceAll(text, []byte("then")), []byte("someone")))
}

// begin is the object as it is created: without what is only ever added later.
func (f *objectTest) begin() object {
	if f.info.GVK.Kind != "Pod" {
		return f.want
	}
	begin := gomaps.Clone(f.want)
	begin["spec"] = gomaps.Clone(begin["spec"].(object))
	delete(begin["spec"].(object), "ephemeralContainers")
	return begin
}

// create makes the object, its status and its other parts, and checks that all that was asked for is there.
func (f *objectTest) create(t *testing.T) {
	made := f.decode(t, encodings[0], f.send("POST", collection(f.info), f.begin()).ok().Body)
	f.equal(t, "get after create", f.get(t, encodings[0], f.path()), made)
	for i := len(f.info.Edits) - 1; i >= 0; i-- { // the status comes last: it may need the others
		patch := object{"status": f.want["status"]}
		switch f.info.Edits[i].Name {
		case "ephemeralcontainers":
			patch = object{"spec": object{"ephemeralContainers": f.want["spec"].(object)["ephemeralContainers"]}}
		case "resize", "finalize":
			continue
		}
		f.send("PATCH", f.path(f.info.Edits[i].Name), patch, "Content-Type", "application/merge-patch+json").ok()
	}
	f.got = f.get(t, encodings[0], f.path())
	for _, lost := range missing(f.want, f.got, "") {
		t.Error(lost)
	}
}

// missing tells what is in one value and not, or otherwise, in another.
func missing(want, got any, at string) (lost []string) {
	switch w := want.(type) {
	case object:
		g, _ := got.(object)
		for key, value := range w {
			lost = append(lost, missing(value, g[key], at+"."+key)...)
		}
		return lost
	case []any:
		if g, _ := got.([]any); len(g) == len(w) {
			for i := range w {
				lost = append(lost, missing(w[i], g[i], fmt.Sprintf("%s[%d]", at, i))...)
			}
			return lost
		}
	}
	if !reflect.DeepEqual(want, got) {
		return []string{fmt.Sprintf("%s is %v, was sent as %v", at, got, want)}
	}
	return nil
}

func (f *objectTest) get(t *testing.T, accept, path string) object {
	t.Helper()
	return f.decode(t, accept, f.send("GET", path, nil, "Accept", accept).ok().Body)
}

// reads gets and lists the object in every encoding and shape.
func (f *objectTest) reads(t *testing.T) {
	for _, accept := range encodings {
		f.equal(t, "get in "+accept, f.get(t, accept, f.path()), f.got)
		list := f.get(t, accept, collection(f.info))
		f.equal(t, "list in "+accept, f.item(t, list["items"]), f.got)
	}
	// Metadata is that of the stored form: another version may have something there that it cannot say elsewhere.
	meta := object{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata(f.get(t, encodings[0], pathTo(f.info.Stored, f.name())))}
	for _, accept := range encodings {
		as := accept + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
		f.equal(t, "metadata in "+accept, f.get(t, as, f.path()), meta)
		as = accept + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
		for _, item := range f.get(t, as, collection(f.info))["items"].([]any) {
			if m := item.(object); metadata(m)["name"] == f.name() {
				m["kind"], m["apiVersion"] = meta["kind"], meta["apiVersion"]
				f.equal(t, "list of metadata in "+accept, m, meta)
			}
		}
	}
	const table = "application/json;as=Table;g=meta.k8s.io;v=v1"
	for _, path := range []string{f.path(), collection(f.info)} {
		f.equal(t, "table with objects", f.row(t, f.get(t, table, path+"?includeObject=Object")), f.got)
		f.equal(t, "table with metadata", f.row(t, f.get(t, table, path)), meta)
	}
}

// item finds the object in a list. There it does not say what kind it is.
func (f *objectTest) item(t *testing.T, items any) object {
	t.Helper()
	for _, i := range items.([]any) {
		if item := i.(object); metadata(item)["name"] == f.name() {
			if item["kind"] != nil || item["apiVersion"] != nil {
				t.Errorf("an item of a list says that it is %v %v", item["apiVersion"], item["kind"])
			}
			item["kind"], item["apiVersion"] = f.got["kind"], f.got["apiVersion"]
			return item
		}
	}
	t.Fatal("not in the list")
	return nil
}

// row finds the object in a table.
func (f *objectTest) row(t *testing.T, table object) object {
	t.Helper()
	columns := len(table["columnDefinitions"].([]any))
	for _, r := range table["rows"].([]any) {
		row := r.(object)
		if o := row["object"].(object); metadata(o)["name"] == f.name() {
			if cells := len(row["cells"].([]any)); cells != columns {
				t.Errorf("%d cells in %d columns", cells, columns)
			}
			return o
		}
	}
	t.Fatal("not in the table")
	return nil
}

// updates sends back what was read, in every encoding. If nothing was lost, nothing changes, and nothing is written.
func (f *objectTest) updates(t *testing.T) {
	for _, media := range encodings {
		body := f.send("GET", f.path(), nil, "Accept", media).ok().Body
		got := f.send("PUT", f.path(), body, "Content-Type", media, "Accept", media).ok().Body
		f.equal(t, "update in "+media, f.decode(t, media, got), f.got)
	}
}

// views reads the object in the other versions it is served in, and sends that back: what those cannot name must stay.
func (f *objectTest) views(t *testing.T) {
	for _, other := range all.Resources() {
		if other.GVR == f.info.GVR || other.Stored.GVR != f.info.Stored.GVR {
			continue
		}
		for _, media := range encodings {
			body := f.send("GET", pathTo(other, f.name()), nil, "Accept", media).ok().Body
			f.send("PUT", pathTo(other, f.name()), body, "Content-Type", media).ok()
			f.equal(t, "by way of "+other.GVR.GroupVersion().String(), f.get(t, encodings[0], f.path()), f.got)
		}
	}
}

func (f *objectTest) equal(t *testing.T, what string, got, want object) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Errorf("%s (- want, + got):\n%s", what, cmp.Diff(want, got))
	}
}

// encode puts an object into an encoding, as a client does.
func (f *objectTest) encode(t *testing.T, media string, o object) []byte {
	t.Helper()
	asJSON, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	switch media {
	case yamlType:
		asYAML, err := yaml.JSONToYAML(asJSON)
		if err != nil {
			t.Fatal(err)
		}
		return asYAML
	case protobuf:
		obj, err := runtime.Decode(known, asJSON)
		if err != nil {
			t.Fatal(err)
		}
		return encoded(t, obj, protobuf)
	}
	return asJSON
}

// known decodes everything that there are types for, and changes nothing.
var known = func() runtime.Decoder {
	types := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(types), apiextensionsv1.AddToScheme(types), apiregistrationv1.AddToScheme(types), metav1.AddMetaToScheme(types)); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(types).UniversalDeserializer()
}()

// nameParts sets the one kind within an object for which protobuf has no room.
func nameParts(obj runtime.Object) {
	switch o := obj.(type) {
	case *appsv1.StatefulSet:
		for i := range o.Spec.VolumeClaimTemplates {
			o.Spec.VolumeClaimTemplates[i].SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
		}
	case *appsv1.StatefulSetList:
		for i := range o.Items {
			nameParts(&o.Items[i])
		}
	}
}

// decode makes of an answer what it would be in JSON.
func (f *objectTest) decode(t *testing.T, accept string, body []byte) object {
	t.Helper()
	asJSON := body
	switch {
	case bytes.HasPrefix([]byte(accept), []byte(protobuf)):
		obj, gvk, err := known.Decode(body, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		obj.GetObjectKind().SetGroupVersionKind(*gvk)
		nameParts(obj)
		if asJSON, err = json.Marshal(obj); err != nil {
			t.Fatal(err)
		}
	case bytes.HasPrefix([]byte(accept), []byte(yamlType)):
		var err error
		if asJSON, err = yaml.YAMLToJSON(body); err != nil {
			t.Fatal(err)
		}
	}
	var got object
	if err := json.Unmarshal(asJSON, &got); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return got
}
