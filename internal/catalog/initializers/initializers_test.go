package initializers_test

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/catalog/initializers"
)

// TestSuffix: a message with a suffix is that of the same object to those who do not know the field.
func TestSuffix(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{NodeName: "n"}}
	message, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if initializers.Has(message) {
		t.Error("a message without initializers has some")
	}
	if in, err := initializers.FromMessage(message); err != nil || in != nil {
		t.Errorf("a message without initializers has %v, %v", in, err)
	}
	want := initializers.Of("a.example.com", "b.example.com")
	want.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "no", Details: &metav1.StatusDetails{Name: "x"}}
	message = append(message, want.Suffix()...)
	if !initializers.Has(message) {
		t.Error("a message with initializers has none")
	}
	if in, err := initializers.FromMessage(message); err != nil || !reflect.DeepEqual(in, want) || !in.Same(want) {
		t.Errorf("got %+v, %v", in, err)
	}
	got := &corev1.Pod{}
	if err := got.Unmarshal(message); err != nil || !reflect.DeepEqual(got, pod) {
		t.Errorf("got %+v, %v", got, err)
	}
	// What the cache appends comes after it.
	spliced := append(message, 1<<3|2, 3, 6<<3|2, 1, '7')
	if in, err := initializers.FromMessage(spliced); err != nil || !in.Same(want) {
		t.Errorf("got %+v, %v", in, err)
	}
}

func TestValidateUpdate(t *testing.T) {
	refused := func(names ...string) *initializers.Initializers {
		in := initializers.Of(names...)
		if in == nil {
			in = &initializers.Initializers{}
		}
		in.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "no"}
		return in
	}
	of := initializers.Of
	for _, c := range []struct {
		name     string
		old, new *initializers.Initializers
		want     string
	}{
		{"initialized", nil, nil, ""},
		{"begins again", nil, of("a.b.c"), "metadata.initializers: Invalid value: null: field is immutable once initialization has completed"},
		{"unchanged", of("a.b.c", "d.e.f"), of("a.b.c", "d.e.f"), ""},
		{"first", of("a.b.c", "d.e.f"), of("d.e.f"), ""},
		{"last", of("a.b.c"), nil, ""},
		{"second", of("a.b.c", "d.e.f"), of("a.b.c"), "metadata.initializers.pending: Invalid value: \"[a.b.c]\": only the first of the pending initializers may be removed, which is a.b.c"},
		{"all", of("a.b.c", "d.e.f"), nil, "metadata.initializers.pending: Invalid value: \"[]\": only the first of the pending initializers may be removed, which is a.b.c"},
		{"added", of("a.b.c"), of("a.b.c", "d.e.f"), "only the first"},
		{"refused", of("a.b.c", "d.e.f"), refused("a.b.c", "d.e.f"), ""},
		{"refused and done", of("a.b.c"), refused(), ""},
		{"refused before", refused("a.b.c"), of("a.b.c"), "metadata.initializers.result: Invalid value: \"no\": field is immutable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.new.ValidateUpdate(c.old).ToAggregate()
			switch {
			case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func FuzzFromMessage(f *testing.F) {
	in := initializers.Of("a.example.com", "b")
	in.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "no"}
	f.Add(in.Suffix())
	f.Add(append([]byte{1<<3 | 2, 2, 1<<3 | 2, 0, 3<<3 | 1, 1, 2, 3, 4, 5, 6, 7, 8}, in.Suffix()...))
	f.Fuzz(func(t *testing.T, message []byte) {
		in, err := initializers.FromMessage(message)
		if err != nil || in == nil {
			return
		}
		again, err := initializers.FromMessage(in.Suffix())
		if err != nil || !again.Same(in) {
			t.Fatalf("%q becomes %+v, %v", message, again, err)
		}
		if !initializers.Has(append([]byte{1<<3 | 2, 0}, in.Suffix()...)) {
			t.Fatalf("a message with %+v has none", in)
		}
		_ = in.Validate()
	})
}

func BenchmarkHas(b *testing.B) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n"}}
	message, err := pod.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if initializers.Has(message) {
			b.Fatal("it has initializers")
		}
	}
}
