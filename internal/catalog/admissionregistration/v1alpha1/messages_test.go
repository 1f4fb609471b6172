package v1alpha1_test

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/catalog/admissionregistration/v1alpha1"
)

func full() *v1alpha1.InitializerConfiguration {
	return &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"a": "b"}}, Initializers: []v1alpha1.Initializer{
		{Name: "a.example.com", Rules: []v1alpha1.Rule{{APIGroups: []string{"", "apps"}, APIVersions: []string{"v1", "v2"}, Resources: []string{"pods"}}, {APIGroups: []string{"*"}}}}, {Name: "b.example.com"}}}
}

// TestMessages: what was written is read again, also from the pieces of a message, which protobuf merges.
func TestMessages(t *testing.T) {
	want := full()
	message, err := want.Marshal()
	if err != nil || len(message) != want.Size() {
		t.Fatalf("%d bytes of %d, %v", len(message), want.Size(), err)
	}
	buffer := make([]byte, len(message)+3)
	if n, err := want.MarshalToSizedBuffer(buffer); err != nil || n != len(message) || string(buffer[3:]) != string(message) {
		t.Errorf("wrote %q, %d, %v", buffer, n, err)
	}
	if _, err := want.MarshalTo(make([]byte, 3)); err == nil {
		t.Error("the message fits into a buffer that is too small")
	}
	got := &v1alpha1.InitializerConfiguration{}
	if err := got.Unmarshal(append(message, 1<<3|2, 3, 6<<3|2, 1, '7')); err != nil || got.ResourceVersion != "7" {
		t.Fatalf("%+v, %v", got, err)
	}
	if got.ResourceVersion = ""; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	copied := want.DeepCopyObject().(*v1alpha1.InitializerConfiguration)
	copied.Initializers[0].Rules[0].APIGroups[1], copied.Labels["a"] = "changed", "changed"
	if !reflect.DeepEqual(want, full()) {
		t.Errorf("a copy shares %+v", want)
	}
}

func FuzzMessages(f *testing.F) {
	message, err := full().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(message)
	f.Add([]byte{2<<3 | 2, 2, 1<<3 | 2, 0})
	f.Fuzz(func(t *testing.T, message []byte) {
		c := &v1alpha1.InitializerConfiguration{}
		if c.Unmarshal(message) != nil {
			return
		}
		again, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		other := &v1alpha1.InitializerConfiguration{}
		if err := other.Unmarshal(again); err != nil || !reflect.DeepEqual(other.Initializers, c.Initializers) {
			t.Fatalf("%+v becomes %+v, %v", c.Initializers, other.Initializers, err)
		}
	})
}
