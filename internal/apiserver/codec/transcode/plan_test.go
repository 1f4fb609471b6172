package transcode

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOpaqueTypes lists the types that are unmarshalled: those with a MarshalJSON that few objects have. A new one makes it fail.
func TestOpaqueTypes(t *testing.T) {
	for _, of := range everyType() {
		if _, err := Compile(of); err != nil {
			t.Fatal(err)
		}
	}
	var opaque []string
	plans.Range(func(of, plan any) bool {
		name := of.(reflect.Type).PkgPath() + "." + of.(reflect.Type).Name()
		if _, wellKnown := wellKnownTypes[of.(reflect.Type)]; plan.(*Plan).opaque && !wellKnown && strings.HasPrefix(name, "k8s.io/") {
			opaque = append(opaque, name)
		}
		return true
	})
	slices.Sort(opaque)
	want := []string{
		"k8s.io/api/authentication/v1.AttestationValue", "k8s.io/api/authentication/v1.ExtraValue", "k8s.io/api/authentication/v1beta1.ExtraValue",
		"k8s.io/api/authorization/v1.ExtraValue", "k8s.io/api/authorization/v1beta1.ExtraValue", "k8s.io/api/certificates/v1.ExtraValue",
		"k8s.io/api/certificates/v1beta1.ExtraValue", "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON",
		"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaProps", "k8s.io/apimachinery/pkg/apis/meta/v1.Verbs", "k8s.io/apimachinery/pkg/runtime.RawExtension",
	}
	if !slices.Equal(opaque, want) {
		t.Errorf("opaque types: %q, want %q", opaque, want)
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, of := range []reflect.Type{
		reflect.TypeFor[string](), reflect.TypeFor[struct{ Name string }](), reflect.TypeFor[*corev1.Pod](), reflect.TypeFor[metav1.Verbs](),
	} {
		if _, err := Compile(of); err == nil {
			t.Errorf("%v has a plan", of)
		}
	}
}

// Holder is a message with a field of a type that no Kubernetes type has.
type Holder[T any] struct {
	Value T `json:"value" protobuf:"bytes,1,opt,name=value"`
}

func (h *Holder[T]) Unmarshal(message []byte) error { return nil }
func (h *Holder[T]) Marshal() ([]byte, error)       { return nil, nil }

// These types, except for the first, have a tag that no Kubernetes type has.
type (
	ordinary struct {
		Holder[string]
		Number int64 `json:"number"`
	}
	sameKey struct {
		Holder[string]
		Other string `json:"value"`
	}
	hidden struct {
		Holder[string]
		Secret string `json:"-"`
	}
	quoted struct {
		Holder[string]
		Number int64 `json:"number,string"`
	}
	oddName struct {
		Holder[string]
		Number int64 `json:"<number>"`
	}
	zeroes struct {
		Holder[string]
		Number int64 `json:"number,omitzero"`
	}
	unnumbered struct {
		Holder[string]
		Number int64 `json:"number" protobuf:"varint,none"`
	}
)

// Types that a plan cannot express are opaque, and their JSON is right.
func TestInexpressible(t *testing.T) {
	for _, of := range []reflect.Type{
		reflect.TypeFor[Holder[float64]](), reflect.TypeFor[Holder[any]](), reflect.TypeFor[Holder[[2]string]](), reflect.TypeFor[Holder[[]*string]](),
		reflect.TypeFor[Holder[*[]string]](), reflect.TypeFor[Holder[map[int32]string]](), reflect.TypeFor[Holder[map[string]int64]](),
		reflect.TypeFor[Holder[json.RawMessage]](), reflect.TypeFor[Holder[time.Month]](), reflect.TypeFor[Holder[time.Time]](), reflect.TypeFor[Holder[uint8]](),
		reflect.TypeFor[Holder[struct{ A string }]](), reflect.TypeFor[sameKey](), reflect.TypeFor[hidden](), reflect.TypeFor[quoted](), reflect.TypeFor[oddName](),
		reflect.TypeFor[zeroes](), reflect.TypeFor[unnumbered](),
	} {
		plan, err := Compile(of)
		if err != nil {
			t.Errorf("%v: %v", of, err)
		} else if !plan.opaque {
			t.Errorf("%v has a plan", of)
		} else {
			check(t, of, nil)
		}
	}
	if plan, err := Compile(reflect.TypeFor[ordinary]()); err != nil || plan.opaque {
		t.Errorf("a type without odd fields is opaque (%v)", err)
	}
}

// link is a recursive message.
type link struct {
	Next *link `json:"next,omitempty" protobuf:"bytes,1,opt,name=next"`
}

func (l *link) Unmarshal(message []byte) error { panic("links are transcoded") }

func TestDepth(t *testing.T) {
	plan, err := Compile(reflect.TypeFor[link]())
	if err != nil {
		t.Fatal(err)
	}
	var message []byte
	for range maxDepth - 1 {
		message = appendBytes(nil, 1, message)
	}
	got, err := plan.AppendJSON(nil, message)
	if want := strings.Repeat(`{"next":`, maxDepth-1) + "{}" + strings.Repeat("}", maxDepth-1); err != nil || string(got) != want {
		t.Errorf("%d messages: %.30s, %v", maxDepth, got, err)
	}
	if got, err := plan.AppendJSON([]byte("x"), appendBytes(nil, 1, message)); err == nil || string(got) != "x" {
		t.Errorf("%d messages: %.30s, %v", maxDepth+1, got, err)
	}
}

// Compile can be called concurrently for types that have parts in common.
func TestCompileConcurrently(t *testing.T) {
	plans.Clear()
	var all sync.WaitGroup
	for _, of := range everyType() {
		for range 2 {
			all.Go(func() {
				plan, err := Compile(of)
				if err == nil {
					_, err = plan.AppendJSON(nil, nil)
				}
				if err != nil {
					t.Errorf("%v: %v", of, err)
				}
			})
		}
	}
	all.Wait()
}
