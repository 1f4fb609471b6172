package extend

import (
	"fmt"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/client"
)

// seen is what an informer has told of, in order.
type seen struct {
	mu   sync.Mutex
	told []string
}

func (s *seen) tell(what string, obj any) {
	if gone, is := obj.(cache.DeletedFinalStateUnknown); is {
		obj = gone.Obj
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		what, m = err.Error(), &metav1.ObjectMeta{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, what+" "+m.GetName())
}

func (s *seen) follow(t *testing.T, informer cache.SharedIndexInformer) {
	t.Helper()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.tell("added", obj) },
		UpdateFunc: func(_, obj any) { s.tell("updated", obj) },
		DeleteFunc: func(obj any) { s.tell("deleted", obj) },
	})
	if err != nil {
		t.Fatal(err)
	}
}

// has returns what is missing of what an informer has told of last.
func (s *seen) has(want ...string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.told) < len(want) || fmt.Sprint(s.told[len(s.told)-len(want):]) != fmt.Sprint(want) {
		return fmt.Sprintf("told %v, want %v", s.told, want)
	}
	return ""
}

// TestInformers has dynamic and metadata informers follow widgets, in the server's process and over HTTPS: they go on after the definition was deleted and
// created again.
func TestInformers(t *testing.T) {
	s := open(t)
	ways := map[string]*client.Client{
		"in process": s.server.InProcess("shopkeeper", "system:shopkeeper", "system:masters"),
		"https":      s.server.Remote("shopkeeper", "system:shopkeeper", "system:masters"),
	}
	told := map[string]*seen{}
	s.make("before", nil)
	for way, c := range ways {
		dynamics := dynamicinformer.NewDynamicSharedInformerFactory(c.Dynamic(), 0)
		metadatas := metadatainformer.NewSharedInformerFactory(c.Metadata(), 0)
		told["dynamic, "+way], told["metadata, "+way] = &seen{}, &seen{}
		told["dynamic, "+way].follow(t, dynamics.ForResource(widgets).Informer())
		told["metadata, "+way].follow(t, metadatas.ForResource(widgets).Informer())
		stop := make(chan struct{})
		dynamics.Start(stop)
		metadatas.Start(stop)
		t.Cleanup(func() { close(stop); dynamics.Shutdown(); metadatas.Shutdown() })
	}
	all := func(want ...string) {
		t.Helper()
		for who, s := range told {
			eventually(t, func() string {
				if missing := s.has(want...); missing != "" {
					return who + ": " + missing
				}
				return ""
			})
		}
	}
	all("added before")
	s.make("after", nil)
	all("added before", "added after")
	if _, err := s.widgets().Patch(t.Context(), "after", "application/merge-patch+json", []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	all("added before", "added after", "updated after")
	s.remove("before", metav1.DeletePropagationBackground)
	all("added after", "updated after", "deleted before")

	if err := s.dynamic.Resource(definitions).Delete(t.Context(), "widgets.shop.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	all("deleted before", "deleted after")
	eventually(t, func() string {
		if _, err := s.dynamic.Resource(definitions).Get(t.Context(), "widgets.shop.example.com", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the definition is still there: %v", err)
		}
		return ""
	})
	s.define()
	s.make("again", nil)
	all("deleted after", "added again")
}
