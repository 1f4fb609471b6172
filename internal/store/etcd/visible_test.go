package etcd

import (
	"fmt"
	"testing"

	"skiff/internal/store"
)

// TestReadsSeeWhatWatchesTold: etcd notifies watchers of a change before it ends the transaction, and reads see the change only after that.
func TestReadsSeeWhatWatchesTold(t *testing.T) {
	t.Parallel()
	s, err := Embed(t.Context(), EmbedOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const writes = 3000
	w := s.Watch(t.Context(), "/", 1)
	written := make(chan error, 1)
	go func() {
		for i := range writes {
			if _, err := s.Put(t.Context(), fmt.Sprint("/k", i%7), nil, store.PutOptions{IfRevision: store.AnyRevision}); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	for seen := 0; seen < writes; {
		batch, ok := <-w.Batches()
		if !ok {
			t.Fatal(w.Err())
		}
		if len(batch.Events) == 0 {
			continue
		}
		seen += len(batch.Events)
		last := batch.Events[len(batch.Events)-1]
		kv, revision, err := s.Get(t.Context(), last.Key)
		if err != nil || kv.Revision < last.Revision || revision < last.Revision {
			t.Fatalf("the watch reported revision %d of %s; a read then found revision %d at %d, %v", last.Revision, last.Key, kv.Revision, revision, err)
		}
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}
