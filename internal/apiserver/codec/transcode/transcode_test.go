package transcode

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"skiff/internal/catalog"
	"skiff/internal/catalog/all"
	"skiff/test/seed"
)

// generated is implemented by all types that are sent as protobuf.
type generated interface {
	unmarshaler
	Marshal() ([]byte, error)
}

// reference returns the JSON by encoding/json of the object that a message holds. A panic of Quantity's Unmarshal is an error too.
func reference(t reflect.Type, message []byte) ([]byte, error) {
	obj := reflect.New(t).Interface().(generated)
	if err := unmarshal(obj, message); err != nil {
		return nil, err
	}
	return json.Marshal(obj)
}

// check compares the transcoded message with the reference.
func check(t *testing.T, of reflect.Type, message []byte) {
	t.Helper()
	plan, err := Compile(of)
	if err != nil {
		t.Fatal(err)
	}
	const before = "before:"
	want, wantErr := reference(of, message)
	got, gotErr := plan.AppendJSON([]byte(before), message)
	switch {
	case (gotErr == nil) != (wantErr == nil):
		t.Fatalf("%v: the error is %v, by way of the object %v\nmessage %x", of, gotErr, wantErr, message)
	case !bytes.HasPrefix(got, []byte(before)), gotErr != nil && len(got) != len(before):
		t.Fatalf("%v: the beginning of b was not kept: %q", of, got)
	case gotErr == nil && !bytes.Equal(got[len(before):], want):
		t.Fatalf("%v: %s\nmessage %x", of, difference(got[len(before):], want), message)
	}
}

func difference(got, want []byte) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	around := func(b []byte) string { return string(b[max(0, i-100):min(len(b), i+100)]) }
	return "got\n" + around(got) + "\nwant\n" + around(want)
}

func typeOf(info *catalog.Info) reflect.Type { return reflect.TypeOf(info.New()).Elem() }

// everyType returns the types of the catalog, and those that occur only in requests or responses.
func everyType() []reflect.Type {
	seen := map[reflect.Type]bool{}
	for _, info := range all.Resources() {
		seen[typeOf(info)] = true
	}
	for _, t := range scheme.Scheme.AllKnownTypes() {
		if reflect.PointerTo(t).Implements(reflect.TypeFor[generated]()) {
			seen[t] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(x, y reflect.Type) int { return strings.Compare(x.PkgPath()+x.Name(), y.PkgPath()+y.Name()) })
}

// versionSuffix returns what the cache appends to a message to set its resourceVersion: a second metadata message.
func versionSuffix(t *testing.T) []byte {
	meta, err := (&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "4711"}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	only := []byte{6<<3 | typeBytes, 4, '4', '7', '1', '1'}
	if bytes.Contains(meta, only) {
		return appendBytes(nil, 1, only)
	}
	t.Fatalf("resourceVersion is not where it was: %x", meta)
	return nil
}

// TestFullObjects checks the test data of k8s.io/api: every kind with every field set. Of the kinds of upstream's extension servers there is none.
func TestFullObjects(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		t.Fatalf("looking for k8s.io/api: %v", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "testdata", "HEAD")
	for _, info := range all.Resources() {
		if !strings.HasPrefix(typeOf(info).PkgPath(), "k8s.io/api/") {
			continue
		}
		name := cmp.Or(info.GVK.Group, "core") + "." + info.GVK.Version + "." + info.GVK.Kind + ".pb"
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			var envelope runtime.Unknown
			if err := envelope.Unmarshal(data[len("k8s\x00"):]); err != nil {
				t.Fatal(err)
			}
			check(t, typeOf(info), envelope.Raw)
			check(t, typeOf(info), append(envelope.Raw, versionSuffix(t)...))
		})
	}
}

// TestRandomObjects checks random objects of every kind: as marshalled, with the version appended, with fields reordered and split, and damaged.
func TestRandomObjects(t *testing.T) {
	const rounds = 12
	seed := seed.New(t)
	suffix := versionSuffix(t)
	r := filler{rand.New(rand.NewPCG(seed, 0))}
	for _, of := range everyType() {
		for range rounds {
			obj := reflect.New(of)
			r.fill(obj.Elem(), 0)
			message, err := obj.Interface().(generated).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			check(t, of, message)
			check(t, of, slices.Concat(message, suffix))
			other := r.rearrange(t, slices.Clone(message), of)
			check(t, of, other)
			check(t, of, slices.Concat(other, other))
			for range 5 {
				check(t, of, r.damage(slices.Clone(other)))
			}
		}
	}
}

// damage changes, removes or repeats a few bytes.
func (r filler) damage(message []byte) []byte {
	for range 1 + r.IntN(3) {
		if len(message) == 0 {
			break
		}
		i := r.IntN(len(message))
		switch r.IntN(4) {
		case 0:
			message[i] = byte(r.Uint32())
		case 1:
			message = message[:i]
		case 2:
			message = slices.Delete(message, i, min(len(message), i+1+r.IntN(4)))
		case 3:
			message = slices.Insert(message, i, message[i:min(len(message), i+1+r.IntN(4))]...)
		}
	}
	return message
}

// TestOddMessages checks messages that no marshaller writes.
func TestOddMessages(t *testing.T) {
	field := appendBytes
	labels := func(entry ...byte) []byte { return field(nil, 1, field(nil, 11, entry)) }
	tests := map[string]struct {
		of      reflect.Type
		message []byte
	}{
		"nothing":                        {reflect.TypeFor[corev1.Pod](), nil},
		"a map entry without anything":   {reflect.TypeFor[corev1.Pod](), labels()},
		"a map entry without value":      {reflect.TypeFor[corev1.Pod](), labels(field(nil, 1, []byte("k"))...)},
		"a map entry with another field": {reflect.TypeFor[corev1.Pod](), labels(field(field(nil, 3, []byte("x")), 1, []byte("k"))...)},
		"a key of the wrong wire type":   {reflect.TypeFor[corev1.Pod](), labels(1<<3, 1, 'k')},
		"a key behind the entry's end":   {reflect.TypeFor[corev1.Pod](), field(nil, 1, append(field(nil, 11, []byte{1<<3 | 2, 4}), "abcd"...))},
		"a key behind the message's end": {reflect.TypeFor[corev1.Pod](), append(labels(1<<3|2, 4), "abcd"...)},
		"a key behind its piece's end": {reflect.TypeFor[corev1.Pod](),
			slices.Concat(labels(1<<3|2, 3), field(nil, 1, field(nil, 1, []byte("a"))))},
		"keys twice and out of order": {reflect.TypeFor[corev1.ConfigMap](), slices.Concat(
			field(nil, 2, field(field(nil, 1, []byte("b")), 2, []byte("1"))), field(nil, 2, field(field(nil, 1, []byte("a")), 2, []byte("2"))),
			field(nil, 2, field(field(nil, 1, []byte("b")), 2, []byte("3"))))},
		"a bad quantity replaced by a good one": {reflect.TypeFor[corev1.ResourceRequirements](), slices.Concat(
			field(nil, 1, field(field(nil, 1, []byte("cpu")), 2, field(nil, 1, []byte("bad")))),
			field(nil, 1, field(field(nil, 1, []byte("cpu")), 2, field(nil, 1, []byte("1")))))},
		"a bad quantity replaced in its entry": {reflect.TypeFor[corev1.ResourceRequirements](),
			field(nil, 1, field(field(field(nil, 1, []byte("cpu")), 2, field(nil, 1, []byte("bad"))), 2, field(nil, 1, []byte("1"))))},
		"a quantity that makes Unmarshal panic": {reflect.TypeFor[corev1.ResourceRequirements](), field(nil, 1,
			field(field(nil, 1, []byte("cpu")), 2, []byte{1<<3 | 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}))},
		"packed numbers":             {reflect.TypeFor[corev1.PodSecurityContext](), []byte{4<<3 | 2, 3, 1, 0x80, 1, 4 << 3, 7}},
		"no packed numbers":          {reflect.TypeFor[corev1.PodSecurityContext](), []byte{4<<3 | 2, 0}},
		"packed numbers going on":    {reflect.TypeFor[corev1.PodSecurityContext](), []byte{4<<3 | 2, 2, 1, 0x80, 1, 3 << 3, 1}},
		"packed numbers amid a list": {reflect.TypeFor[corev1.PodSecurityContext](), []byte{7<<3 | 2, 0, 4<<3 | 2, 1, 0x80, 7<<3 | 2, 0, 7<<3 | 2, 0}},
		"cut-off packed numbers":     {reflect.TypeFor[corev1.PodSecurityContext](), []byte{4<<3 | 2, 2, 1, 0x80}},
		"too long packed numbers":    {reflect.TypeFor[corev1.PodSecurityContext](), []byte{4<<3 | 2, 3, 1}},
		"a number too large":         {reflect.TypeFor[corev1.ContainerPort](), []byte{2 << 3, 0x80, 0x80, 0x80, 0x80, 0x10}},
		"a group":                    {reflect.TypeFor[corev1.Pod](), []byte{9<<3 | 3, 1 << 3, 7, 2<<3 | 3, 2<<3 | 4, 9<<3 | 4}},
		"a group without end":        {reflect.TypeFor[corev1.Pod](), []byte{9<<3 | 3, 1 << 3, 7}},
		"an end without group":       {reflect.TypeFor[corev1.Pod](), []byte{9<<3 | 4}},
		"field zero":                 {reflect.TypeFor[corev1.Pod](), []byte{0, 0}},
		"fixed numbers":              {reflect.TypeFor[corev1.Pod](), []byte{9<<3 | 1, 0, 0, 0, 0, 0, 0, 0, 0, 9<<3 | 5, 0, 0, 0, 0}},
		"a cut-off fixed number":     {reflect.TypeFor[corev1.Pod](), []byte{9<<3 | 5, 0, 0, 0}},
		"an endless varint":          {reflect.TypeFor[corev1.Pod](), bytes.Repeat([]byte{0x80}, 11)},
		"a bad IntOrString":          {reflect.TypeFor[corev1.ServicePort](), field(nil, 4, []byte{1 << 3, 2})},
		"an IntOrString in pieces":   {reflect.TypeFor[corev1.ServicePort](), field(field(nil, 4, []byte{1 << 3, 1}), 4, []byte{3<<3 | 2, 1, 'x'})},
		"an empty IntOrString":       {reflect.TypeFor[corev1.ServicePort](), field(nil, 4, nil)},
		"a time twice":               {reflect.TypeFor[metav1.ObjectMeta](), field(field(nil, 8, []byte{1 << 3, 5}), 8, nil)},
		"a time with nothing known":  {reflect.TypeFor[metav1.ObjectMeta](), field(nil, 8, []byte{9 << 3, 5})},
		"a bad time replaced":        {reflect.TypeFor[metav1.ObjectMeta](), field(field(nil, 8, []byte{1<<3 | 2}), 8, nil)},
		"empty data of a secret":     {reflect.TypeFor[corev1.Secret](), field(nil, 2, field(nil, 1, []byte("k")))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { check(t, test.of, test.message) })
	}
}
