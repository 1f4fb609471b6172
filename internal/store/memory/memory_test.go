package memory_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"skiff/internal/store"
	"skiff/internal/store/memory"
	"skiff/internal/store/storetest"
)

func open(*testing.T) store.Store { return memory.New(memory.Options{}) }

func TestContract(t *testing.T) { storetest.Run(t, open) }

// TestAgainstItself tests the comparison.
func TestAgainstItself(t *testing.T) {
	t.Parallel()
	storetest.Compare(t, 3000, open, open)
}

func put(t testing.TB, s store.Store, key string, ttl time.Duration) int64 {
	t.Helper()
	revision, err := s.Put(t.Context(), key, []byte("v"+key), store.PutOptions{IfRevision: store.AnyRevision, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func awaitExpired(t *testing.T, s store.Store, key string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, _, err := s.Get(t.Context(), key); errors.Is(err, store.ErrNotFound) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s did not expire", key)
		}
	}
}

func TestExpiryFollowsTheClock(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	s := memory.New(memory.Options{Clock: clock})
	defer s.Close()
	put(t, s, "/hour", time.Hour)
	put(t, s, "/minute", time.Minute)
	last := put(t, s, "/second", time.Second)
	for i, key := range []string{"/second", "/minute", "/hour"} {
		for !clock.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
		clock.Step([]time.Duration{time.Second, time.Minute, time.Hour}[i])
		awaitExpired(t, s, key)
		if now, _ := s.Revision(t.Context()); now != last+int64(i)+1 {
			t.Errorf("revision %d after %d expiries, want %d: one for each", now, i+1, last+int64(i)+1)
		}
	}
}

func TestSnapshotAndRestore(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	s := memory.New(memory.Options{Clock: clock})
	defer s.Close()
	for i := range 100 {
		put(t, s, fmt.Sprintf("/%02d", i), 0)
	}
	if _, err := s.Delete(t.Context(), "/50", store.AnyRevision); err != nil {
		t.Fatal(err)
	}
	before := put(t, s, "/leased", time.Hour)
	var snapshot bytes.Buffer
	if err := s.Snapshot(t.Context(), &snapshot); err != nil {
		t.Fatal(err)
	}
	want, err := s.List(t.Context(), "", store.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "/later", 0)

	r, err := memory.Restore(bytes.NewReader(snapshot.Bytes()), memory.Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := r.List(t.Context(), "", store.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Revision < before+1_000_000 {
		t.Errorf("restored at %d, the snapshot was at %d", got.Revision, before)
	}
	if fmt.Sprint(got.KVs) != fmt.Sprint(want.KVs) {
		t.Errorf("restored %v, want %v", got.KVs, want.KVs)
	}
	w := r.Watch(t.Context(), "/", before)
	if _, ok := <-w.Batches(); ok || !errors.Is(w.Err(), store.ErrCompacted) {
		t.Errorf("a watch went on across the restore: %v", w.Err())
	}
	w = r.Watch(t.Context(), "/", got.Revision)
	if next := put(t, r, "/new", 0); next != got.Revision+1 {
		t.Errorf("the first write is at %d, want %d", next, got.Revision+1)
	}
	if batch := <-w.Batches(); len(batch.Events) != 1 || batch.Events[0].Key != "/new" {
		t.Errorf("watched %+v", batch)
	}
	for !clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	clock.Step(2 * time.Hour)
	awaitExpired(t, r, "/leased")

	for name, data := range map[string][]byte{
		"cut short": snapshot.Bytes()[:snapshot.Len()-9],
		"damaged":   append([]byte("x"), snapshot.Bytes()[1:]...),
		"empty":     nil,
	} {
		if r, err := memory.Restore(bytes.NewReader(data), memory.Options{}); err == nil {
			r.Close()
			t.Errorf("restored a snapshot that is %s", name)
		}
	}
}

// TestCloseEndsGoroutines opens many stores, as tests do.
func TestCloseEndsGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 200 {
		s := memory.New(memory.Options{})
		put(t, s, "/a", time.Hour)
		for range 5 {
			s.Watch(t.Context(), "/", 1)
		}
		s.Close()
	}
	if after := runtime.NumGoroutine(); after > before+10 {
		t.Errorf("%d goroutines before, %d after", before, after)
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		memory.New(memory.Options{}).Close()
	}
}

func BenchmarkPut(b *testing.B) {
	s := memory.New(memory.Options{})
	defer s.Close()
	w := s.Watch(b.Context(), "/", 1)
	go func() {
		for range w.Batches() {
		}
	}()
	value := bytes.Repeat([]byte("v"), 1500)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := s.Put(b.Context(), fmt.Sprintf("/%d", i), value, store.PutOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
