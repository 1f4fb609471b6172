package etcd

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"skiff/internal/store"
)

// open opens a store for tests that need its engine.
func open(t testing.TB, opts EmbedOptions) (*Store, *embedded) {
	t.Helper()
	opts.Dir = t.TempDir()
	s, err := Embed(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, s.engine.(*embedded)
}

// openWithServer opens a store that serves etcd clients.
func openWithServer(t testing.TB) (*Store, *server) {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd") // short, as sockets need
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, e := open(t, EmbedOptions{Listen: "unix:" + filepath.Join(dir, "s")})
	return s, e.member.(*server)
}

// TestAlarm makes etcd itself refuse writes for lack of space, as it does when another client filled it.
func TestAlarm(t *testing.T) {
	t.Parallel()
	s, member := openWithServer(t)
	revision, err := s.Put(t.Context(), "/a", []byte("1"), store.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	alarm := &pb.AlarmRequest{MemberID: uint64(member.MemberID()), Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE}
	if _, err := member.Alarm(t.Context(), alarm); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "/a", []byte("2"), store.PutOptions{IfRevision: revision}); !errors.Is(err, store.ErrFull) {
		t.Errorf("guarded write: %v", err)
	}
	if _, err := s.Put(t.Context(), "/b", []byte("2"), store.PutOptions{}); !errors.Is(err, store.ErrFull) {
		t.Errorf("creation: %v", err)
	}
	if _, err := s.Put(t.Context(), "/a", []byte("2"), store.PutOptions{IfRevision: store.AnyRevision}); err == nil || errors.Is(err, store.ErrFull) {
		t.Errorf("a blind write, of which nobody can tell: %v", err)
	}
	if _, err := s.Put(t.Context(), "/c", nil, store.PutOptions{TTL: time.Hour}); !errors.Is(err, store.ErrFull) {
		t.Errorf("write with TTL: %v", err)
	}
	if err := s.Defragment(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "/a", []byte("2"), store.PutOptions{IfRevision: revision}); err != nil {
		t.Errorf("after defragmenting: %v", err)
	}
}

// TestHistoryJustAfterCommit reads history when etcd's buffer of recent writes and its database hold the same.
func TestHistoryJustAfterCommit(t *testing.T) {
	t.Parallel()
	s, e := open(t, EmbedOptions{})
	start, _ := s.Revision(t.Context())
	const writes = 10
	for i := range writes {
		if _, err := s.Put(t.Context(), "/"+strconv.Itoa(i), []byte("v"), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Get(t.Context(), "/0"); err != nil { // fills the buffer that reads share
		t.Fatal(err)
	}
	e.backend.ForceCommit()
	seen := start
	for batch := range s.Watch(t.Context(), "/", start).Batches() {
		for _, event := range batch.Events {
			if event.Revision != seen+1 {
				t.Fatalf("revision %d comes after %d", event.Revision, seen)
			}
			seen++
		}
		if seen == start+writes {
			break
		}
	}
}

// BenchmarkPutV3Client does what BenchmarkPut does through etcd's own adapter for embedded servers: the reason not to.
func BenchmarkPutV3Client(b *testing.B) {
	_, member := openWithServer(b)
	client := v3client.New(member.EtcdServer)
	value := string(bytes.Repeat([]byte("v"), 1500))
	var next atomic.Int64
	b.SetParallelism(max(1, 32/runtime.GOMAXPROCS(0)))
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			key := "/registry/bench/" + strconv.FormatInt(next.Add(1), 10)
			absent := clientv3.Compare(clientv3.ModRevision(key), "=", 0)
			if _, err := client.Txn(b.Context()).If(absent).Then(clientv3.OpPut(key, value)).Else(clientv3.OpGet(key)).Commit(); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
}
