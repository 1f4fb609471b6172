package cache

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"skiff/internal/store"
	"skiff/internal/store/memory"
)

// sharedFixture is a cache of config maps that counts how often one is decoded.
type sharedFixture struct {
	*Cache
	store   store.Store
	decoded atomic.Int64

	mu       sync.Mutex
	problems []string
}

func newSharedFixture(t *testing.T) *sharedFixture {
	s := &sharedFixture{store: memory.New(memory.Options{})}
	kind := Kind{
		Name: "configmaps", Prefix: "/registry/configmaps/",
		Parse: func(value []byte, revision int64) (*Item, error) { return NewItem(value, revision), nil },
		Decode: func(raw []byte) (runtime.Object, error) {
			s.decoded.Add(1)
			cm := &corev1.ConfigMap{}
			return cm, cm.Unmarshal(raw)
		},
	}
	feed := NewFeed(s.store, []Kind{kind}, Options{GuardShared: func(problem string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.problems = append(s.problems, problem)
	}})
	t.Cleanup(func() {
		feed.Close()
		s.store.Close()
	})
	<-feed.Synced()
	s.Cache = feed.Cache("configmaps")
	return s
}

// put writes an object and returns its item.
func (s *sharedFixture) put(t *testing.T, name, value string) *Item {
	t.Helper()
	message, err := (&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": value}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	revision, err := s.store.Put(t.Context(), "/registry/configmaps/"+name, message, store.PutOptions{IfRevision: store.AnyRevision})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.feed.WaitFor(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	return s.Get(name)
}

func (s *sharedFixture) object(t *testing.T, it *Item) *corev1.ConfigMap {
	t.Helper()
	obj, err := s.Object(it)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*corev1.ConfigMap)
}

// TestShare: while somebody shares, each version is decoded once, whoever asks; afterwards nothing is kept.
func TestShare(t *testing.T) {
	s := newSharedFixture(t)
	it := s.put(t, "one", "1")
	if first, second := s.object(t, it), s.object(t, it); first == second || s.decoded.Load() != 2 {
		t.Error("an object was kept that nobody shares")
	}
	first, second := s.Share(), s.Share()
	var readers sync.WaitGroup
	objects := make([]*corev1.ConfigMap, 8)
	for i := range objects {
		readers.Go(func() { objects[i] = s.object(t, it) })
	}
	readers.Wait()
	for _, obj := range objects {
		if obj != objects[0] {
			t.Error("two readers got two objects")
		}
	}
	before := s.decoded.Load()
	first()
	first() // a second call does nothing
	if s.object(t, it) != objects[0] || s.decoded.Load() != before {
		t.Error("an object was dropped while somebody shares")
	}
	second()
	if it.object.Load() != nil {
		t.Error("an object was kept after the last reader went")
	}
}

// TestShareCools: the decoded object of a replaced version is dropped after ringWarm further changes; that of a current version is kept.
func TestShareCools(t *testing.T) {
	s := newSharedFixture(t)
	defer s.Share()()
	replaced, stays := s.put(t, "one", "1"), s.put(t, "other", "1")
	s.object(t, replaced)
	s.object(t, stays)
	for range ringWarm {
		s.put(t, "one", "2")
	}
	if replaced.object.Load() == nil {
		t.Error("the object of a late change was dropped")
	}
	s.put(t, "one", "3")
	s.put(t, "one", "4")
	if replaced.object.Load() != nil || stays.object.Load() == nil {
		t.Errorf("of a replaced version the object is kept: %v; of a current one: %v", replaced.object.Load() != nil, stays.object.Load() != nil)
	}
	if got := s.object(t, replaced).Data["k"]; got != "1" {
		t.Errorf("decoded again, it says %q", got)
	}
}

func TestGuard(t *testing.T) {
	s := newSharedFixture(t)
	check := func(what string, reports int) {
		t.Helper()
		s.feed.CheckShared()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.problems) != reports {
			t.Errorf("%s: %d reports, expected %d: %q", what, len(s.problems), reports, s.problems)
		}
		for _, p := range s.problems {
			if !strings.Contains(p, "configmaps one at revision") {
				t.Errorf("%s: %s", what, p)
			}
		}
		s.problems = nil
	}
	release := s.Share()
	one := s.object(t, s.put(t, "one", "1"))
	s.object(t, s.put(t, "other", "1"))
	check("reading", 0)
	one.Data["k"] = "changed"
	check("changing", 1)
	check("leaving it", 0)
	one.Kind = "ConfigMap"
	check("changing the kind", 1)

	// Found when it is replaced, and after.
	one.Data["k"] = "again"
	s.put(t, "one", "2")
	s.mu.Lock()
	if len(s.problems) != 1 {
		t.Errorf("replacing: reported %q", s.problems)
	}
	s.problems = nil
	s.mu.Unlock()
	one.Data["k"] = "once more"
	check("changing an old version", 1)

	// What is kept of old versions is bounded.
	for range maxRetired + 10 {
		s.object(t, s.put(t, "one", "3"))
	}
	if n := len(s.feed.guard.watched); n > maxRetired+2 {
		t.Errorf("%d objects are kept", n)
	}
	check("reading much", 0)
	one = s.object(t, s.Get("one"))
	release()
	one.Data["k"] = "after everybody went"
	check("changing what is shared no more", 1)
}
