package apiserver_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"skiff/internal/catalog/all"
)

// fullObjects reads testdata/objects. All objects get the same metadata; pod templates get the first pod's spec.
func fullObjects(t *testing.T) map[schema.GroupVersionKind][]object {
	t.Helper()
	objects := map[schema.GroupVersionKind][]object{}
	files, err := filepath.Glob("testdata/objects/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(data, []byte("\n---\n")) {
			var o object
			if err := yaml.Unmarshal(document, &o); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			gvk := schema.FromAPIVersionAndKind(o["apiVersion"].(string), o["kind"].(string))
			objects[gvk] = append(objects[gvk], o)
		}
	}
	pod := objects[corev1.SchemeGroupVersion.WithKind("Pod")][0]["spec"].(object)
	fresh := freshCertificate(t)
	for _, info := range all.Resources() {
		for _, o := range objects[info.GVK] {
			fillIn(t, o, pod, fresh)
			setMetadata(metadata(o), info.Namespaced)
		}
	}
	return objects
}

func setMetadata(meta object, namespaced bool) {
	if _, decided := meta["generateName"]; !decided {
		meta["generateName"] = meta["name"].(string) + "-"
	} else {
		delete(meta, "generateName")
	}
	meta["labels"] = object{"app": "web", "example.com/empty": ""}
	meta["annotations"] = object{"example.com/note": "ä\n\"quoted\""}
	meta["finalizers"] = []any{"example.com/keep"}
	meta["ownerReferences"] = []any{object{"apiVersion": "example.com/v1", "kind": "Owner", "name": "o", "uid": "u", "controller": true, "blockOwnerDeletion": true}}
	if namespaced {
		meta["namespace"] = "default"
	}
}

// fillIn completes the pod templates in an object, and puts in what must be of today.
func fillIn(t *testing.T, o, pod object, fresh map[string]any) {
	for key, value := range o {
		switch v := value.(type) {
		case object:
			if template, ok := v["spec"].(object); ok && key == "template" && template["containers"] == nil {
				v["spec"] = merged(t, pod, template)
			}
			fillIn(t, v, pod, fresh)
		case string:
			if made, ok := fresh[v]; ok {
				o[key] = made
			}
		}
	}
}

// merged is the pod's spec as a template has it.
func merged(t *testing.T, pod, template object) (spec object) {
	template["ephemeralContainers"] = nil // there are none in templates
	patch, err := json.Marshal(template)
	if err != nil {
		t.Fatal(err)
	}
	original, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	result, err := jsonpatch.MergePatch(original, patch)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(result, &spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// freshCertificate is a pod's certificate that was issued just now, and what asked for it.
func freshCertificate(t *testing.T) map[string]any {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.Add(2 * time.Hour)}
	chain, err := x509.CreateCertificate(rand.Reader, leaf, leaf, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{
		"$request": base64.StdEncoding.EncodeToString(request), "$chain": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: chain})),
		"$notBefore": now.Format(time.RFC3339), "$beginRefreshAt": now.Add(time.Hour).Format(time.RFC3339), "$notAfter": leaf.NotAfter.Format(time.RFC3339),
	}
}

// TestFullObjectsAreFull compares the fields that no full object has with testdata/objects/unset.txt, which says why not. A field that is
// new in k8s.io/api shows up here.
func TestFullObjectsAreFull(t *testing.T) {
	data, err := os.ReadFile("testdata/objects/unset.txt")
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		reasons[name] = strings.TrimSpace(reason)
	}
	objects := fullObjects(t)
	seen := fields{}
	for _, info := range all.Resources() {
		for _, o := range objects[info.GVK] {
			seen.in(reflect.TypeOf(info.New()), o)
		}
	}
	for _, name := range seen.unset() {
		if reasons[name] == "" {
			t.Errorf("no object has %s, and nothing says why", name)
		}
		delete(reasons, name)
	}
	for name := range reasons {
		t.Errorf("%s is set, or is no longer there", name)
	}
}

// fields are those of every type within an object, and whether any of its values has them.
type fields map[reflect.Type]map[string]bool

// in notes the fields that a value has.
func (f fields) in(typ reflect.Type, value any) {
	switch typ.Kind() {
	case reflect.Pointer:
		f.in(typ.Elem(), value)
	case reflect.Slice:
		if items, ok := value.([]any); ok {
			for _, item := range items {
				f.in(typ.Elem(), item)
			}
		}
	case reflect.Map:
		if entries, ok := value.(object); ok {
			for _, entry := range entries {
				f.in(typ.Elem(), entry)
			}
		}
	case reflect.Struct:
		value, ok := value.(object)
		if !ok || reflect.PointerTo(typ).Implements(reflect.TypeFor[json.Unmarshaler]()) || typ == reflect.TypeFor[metav1.ObjectMeta]() {
			return
		}
		f.fieldsOf(typ, typ, value)
	}
}

func (f fields) fieldsOf(owner, typ reflect.Type, value object) {
	if f[owner] == nil {
		f[owner] = map[string]bool{}
	}
	for i := range typ.NumField() {
		field := typ.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-", field.Type == reflect.TypeFor[metav1.TypeMeta]():
		case name == "" && field.Anonymous:
			f.fieldsOf(owner, field.Type, value)
		default:
			v, set := value[name]
			f[owner][name] = f[owner][name] || set
			if set {
				f.in(field.Type, v)
			}
		}
	}
}

func (f fields) unset() (names []string) {
	for typ, fields := range f {
		for name, set := range fields {
			if !set {
				names = append(names, strings.TrimPrefix(typ.PkgPath(), "k8s.io/api/")+"."+typ.Name()+"."+name)
			}
		}
	}
	slices.Sort(names)
	return names
}
