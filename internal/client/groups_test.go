package client

import (
	"context"
	"net/http"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/journey"
)

// allKindsView is a View that shares every kind of the scheme.
type allKindsView struct{ http.Handler }

func (allKindsView) Kinds() map[schema.GroupVersionResource]schema.GroupVersionKind {
	kinds := map[schema.GroupVersionResource]schema.GroupVersionKind{}
	for kind := range scheme.Scheme.AllKnownTypes() {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		kinds[resource] = kind
	}
	return kinds
}

func (v allKindsView) Shares(resource schema.GroupVersionResource) bool {
	return v.Kinds()[resource].Kind != ""
}

func (allKindsView) List(context.Context, Shared, metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	return nil, metav1.ListMeta{}, nil
}

func (allKindsView) Watch(context.Context, Shared, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewEmptyWatch(), nil
}

func (allKindsView) PutSpan(journey.Span) {}

// TestEveryGroupShares gets every informer of every group from a factory. None may come from the embedded factory, which would happen
// to a group that is missing in groups.go.
func TestEveryGroupShares(t *testing.T) {
	underneath := informers.NewSharedInformerFactory(nil, 0)
	factory := reflect.ValueOf(&sharedFactory{SharedInformerFactory: underneath, reads: newSharedReads(allKindsView{})})
	asked := 0
	for _, group := range accessors(factory) {
		for _, version := range accessors(group) {
			for _, resource := range accessors(version) {
				resource.MethodByName("Informer").Call(nil)
				asked++
			}
		}
	}
	made := 0
	for kind, typ := range scheme.Scheme.AllKnownTypes() {
		obj, ok := reflect.New(typ).Interface().(runtime.Object)
		if !ok {
			continue
		}
		informer := underneath.InformerFor(obj, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return nil })
		if informer == nil {
			continue // was not asked for
		}
		made++
		if _, shares := informer.(copyingTransform); !shares {
			t.Errorf("%v: its informer does not share: is its group missing in groups.go?", kind)
		}
	}
	t.Logf("%d informers", asked)
	if made < asked || asked < 50 {
		t.Errorf("%d informers were asked for and %d found", asked, made)
	}
}

// accessors calls the methods that take nothing and return one interface.
func accessors(of reflect.Value) []reflect.Value {
	var out []reflect.Value
	for i := range of.NumMethod() {
		typ := of.Method(i).Type()
		if typ.NumIn() != 0 || typ.NumOut() != 1 || typ.Out(0).Kind() != reflect.Interface {
			continue
		}
		if _, informer := typ.Out(0).MethodByName("Informer"); informer || typ.Out(0).Name() == "Interface" {
			out = append(out, of.Method(i).Call(nil)[0])
		}
	}
	return out
}
