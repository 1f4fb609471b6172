package etcd_test

import (
	"fmt"
	"testing"
	"time"

	"skiff/internal/store"
	"skiff/internal/store/etcd"
)

// TestConvert opens the same directory with etcd's server and without it, in turn.
func TestConvert(t *testing.T) {
	t.Parallel()
	dir, socket := t.TempDir(), "unix:"+socketPath(t)
	written := map[string]int64{}
	newest := int64(0)
	for round := range 5 {
		opts := etcd.EmbedOptions{Dir: dir}
		if round%2 == 1 {
			opts.Listen = socket
		}
		s := embed(t, opts)
		if now, err := s.Revision(t.Context()); err != nil || newest != 0 && now != newest {
			t.Errorf("round %d begins at revision %d, %v; the one before ended at %d", round, now, err, newest)
		}
		for key, revision := range written {
			if kv, _, err := s.Get(t.Context(), key); err != nil || kv.Revision != revision {
				t.Errorf("round %d: %s is at %d, %v; was at %d", round, key, kv.Revision, err, revision)
			}
		}
		for _, ttl := range []time.Duration{0, time.Hour} {
			key := fmt.Sprintf("/%d/%v", round, ttl)
			revision, err := s.Put(t.Context(), key, []byte("v"), store.PutOptions{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			written[key], newest = revision, revision
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// A key written with a TTL before the conversion still expires after it.
	s := embed(t, etcd.EmbedOptions{Dir: dir})
	if _, err := s.Put(t.Context(), "/short", nil, store.PutOptions{TTL: time.Second}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = embed(t, etcd.EmbedOptions{Dir: dir, Listen: socket})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if _, _, err := s.Get(t.Context(), "/short"); err == store.ErrNotFound {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not expire")
		}
	}
}

// TestKillFromLogToLog kills a process that converts a directory.
func TestKillFromLogToLog(t *testing.T) {
	t.Parallel()
	dir, socket := t.TempDir(), "unix:"+socketPath(t)
	for round := range 16 {
		listen := ""
		if round%2 == 0 {
			listen = socket
		}
		s := embed(t, etcd.EmbedOptions{Dir: dir, Listen: listen})
		for i := range round {
			if got := value(t, s, fmt.Sprint("/sentinel/", i)); got != "v" {
				t.Errorf("round %d: /sentinel/%d is %q", round, i, got)
			}
		}
		put(t, s, fmt.Sprint("/sentinel/", round), "v")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		other := socket
		if listen != "" {
			other = ""
		}
		killWhileOpening(t, dir, other, 60*time.Millisecond)
	}
}
