package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skiff/internal/store"
	"skiff/internal/store/etcd"
)

var anyRevision = store.PutOptions{IfRevision: store.AnyRevision}

func put(t testing.TB, s store.Store, key, value string) int64 {
	t.Helper()
	revision, err := s.Put(t.Context(), key, []byte(value), anyRevision)
	if err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
	return revision
}

func value(t testing.TB, s store.Store, key string) string {
	t.Helper()
	kv, _, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("get %q: %v", key, err)
	}
	return string(kv.Value)
}

func TestReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var last int64
	for round := range 3 {
		s := embed(t, etcd.EmbedOptions{Dir: dir})
		for i := range round {
			if got := value(t, s, fmt.Sprint("/", i)); got != fmt.Sprint(i) {
				t.Errorf("round %d: /%d is %q", round, i, got)
			}
		}
		if last != 0 {
			if now, _ := s.Revision(t.Context()); now != last {
				t.Errorf("round %d starts at revision %d, want %d", round, now, last)
			}
			// A watch goes on where one of the process before stood.
			select {
			case batch := <-s.Watch(t.Context(), "/", last-1).Batches():
				if len(batch.Events) != 1 || batch.Events[0].Revision != last {
					t.Errorf("round %d: watch tells %+v", round, batch)
				}
			case <-time.After(5 * time.Second):
				t.Errorf("round %d: watch tells nothing", round)
			}
		}
		last = put(t, s, fmt.Sprint("/", round), fmt.Sprint(round))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDirectoryIsPrivateAndLocked(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "etcd")
	s := embed(t, etcd.EmbedOptions{Dir: dir})
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := etcd.Embed(t.Context(), etcd.EmbedOptions{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("second store in the same directory: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	embed(t, etcd.EmbedOptions{Dir: dir})
}

func TestNoSockets(t *testing.T) {
	dir := t.TempDir()
	before := sockets(t)
	s := embed(t, etcd.EmbedOptions{Dir: dir})
	put(t, s, "/a", "1")
	if after := sockets(t); after > before {
		t.Errorf("%d sockets were opened", after-before)
	}
}

func sockets(t *testing.T) int {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("needs /proc")
	}
	n := 0
	for _, fd := range fds {
		if target, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

func TestQuietLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	dir, log := t.TempDir(), slog.New(slog.NewTextHandler(&out, nil))
	for range 2 {
		s := embed(t, etcd.EmbedOptions{Dir: dir, Log: log})
		put(t, s, "/a", "1")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if out.Len() > 0 {
		t.Errorf("two quiet lives logged:\n%s", out.String())
	}
}

func TestHealthy(t *testing.T) {
	t.Parallel()
	s := embed(t, etcd.EmbedOptions{Dir: t.TempDir()})
	if err := s.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	s.Close()
	if err := s.Healthy(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after closing: %v", err)
	}
}

// TestFull fills a small database from many sides. What was acknowledged is there, what was refused is not, and
// after making room writing works again.
func TestFull(t *testing.T) {
	t.Parallel()
	const quota = 4 << 20
	dir := t.TempDir()
	s := embed(t, etcd.EmbedOptions{Dir: dir, QuotaBytes: quota})
	ctx := t.Context()
	payload := bytes.Repeat([]byte("x"), 50_000)

	var mu sync.Mutex
	written, refused := map[string]int64{}, []string{}
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for i := range 100 {
				key := fmt.Sprintf("/%d/%d", n, i)
				revision, err := s.Put(ctx, key, payload, store.PutOptions{})
				mu.Lock()
				if errors.Is(err, store.ErrFull) {
					refused = append(refused, key)
				} else if err != nil {
					t.Error(err)
				} else {
					written[key] = revision
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(written) == 0 || len(refused) == 0 {
		t.Fatalf("%d written, %d refused", len(written), len(refused))
	}
	// Some were refused only because others were under way: fill the rest.
	for i := 0; ; i++ {
		key := fmt.Sprintf("/rest/%d", i)
		revision, err := s.Put(ctx, key, payload, store.PutOptions{})
		if errors.Is(err, store.ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		written[key] = revision
	}
	if _, err := s.Put(ctx, "/leased", payload, store.PutOptions{TTL: time.Hour}); !errors.Is(err, store.ErrFull) {
		t.Errorf("a write with TTL: %v", err)
	}
	list, err := s.List(ctx, "/", store.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range list.KVs {
		if written[kv.Key] != kv.Revision {
			t.Errorf("%s is at %d, acknowledged was %d", kv.Key, kv.Revision, written[kv.Key])
		}
	}
	if len(list.KVs) != len(written) {
		t.Errorf("%d keys are there, %d were acknowledged", len(list.KVs), len(written))
	}

	for key := range written {
		if _, err := s.Delete(ctx, key, store.AnyRevision); err != nil {
			t.Fatalf("delete from a full database: %v", err)
		}
	}
	now, _ := s.Revision(ctx)
	if err := s.Compact(ctx, now); err != nil {
		t.Fatal(err)
	}
	before, _, _ := s.Size(ctx)
	if err := s.Defragment(ctx); err != nil {
		t.Fatal(err)
	}
	if after, _, _ := s.Size(ctx); after >= before {
		t.Errorf("defragmented from %d to %d bytes", before, after)
	}
	put(t, s, "/again", string(payload))
}

func TestLargerQuotaHelps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := embed(t, etcd.EmbedOptions{Dir: dir, QuotaBytes: 1 << 20})
	payload := bytes.Repeat([]byte("x"), 100_000)
	var err error
	for i := 0; err == nil && i < 100; i++ {
		_, err = s.Put(t.Context(), fmt.Sprint("/", i), payload, store.PutOptions{})
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatal(err)
	}
	s.Close()
	s = embed(t, etcd.EmbedOptions{Dir: dir, QuotaBytes: 8 << 20})
	put(t, s, "/more", string(payload))
}

// TestCloseUnderLoad closes while everything is going on. Every call ends; none crashes.
func TestCloseUnderLoad(t *testing.T) {
	t.Parallel()
	for range 5 {
		s := embed(t, etcd.EmbedOptions{Dir: t.TempDir()})
		ctx := t.Context()
		var wg sync.WaitGroup
		started := make(chan struct{}, 16)
		for n := range 4 {
			until := func(call func() error) {
				wg.Go(func() {
					for i := 0; ; i++ {
						if err := call(); err != nil {
							return
						}
						if i == 20 {
							started <- struct{}{}
						}
					}
				})
			}
			until(func() error {
				_, err := s.Put(ctx, fmt.Sprint("/", n), []byte("v"), anyRevision)
				return err
			})
			until(func() error {
				_, err := s.List(ctx, "/", store.ListOptions{})
				return err
			})
			until(func() error {
				return s.Snapshot(ctx, &bytes.Buffer{})
			})
			wg.Go(func() {
				for range s.Watch(ctx, "/", 1).Batches() {
				}
			})
		}
		for range 4 {
			<-started
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

func TestEmbedRefusesBadOptions(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]etcd.EmbedOptions{
		"negative quota":      {QuotaBytes: -1},
		"plain TCP":           {Listen: "http://127.0.0.1:0"},
		"other machines":      {Listen: "https://0.0.0.0:0", CAFile: "ca", CertFile: "c", KeyFile: "k"},
		"no certificates":     {Listen: "https://127.0.0.1:0"},
		"long socket path":    {Listen: "unix:/" + strings.Repeat("x", 120)},
		"something else":      {Listen: "2379"},
		"missing certificate": {Listen: "https://127.0.0.1:0", CAFile: "/none", CertFile: "/none", KeyFile: "/none"},
	} {
		opts.Dir = t.TempDir()
		s, err := etcd.Embed(t.Context(), opts)
		if err == nil {
			s.Close()
			t.Errorf("%s: no error", name)
			continue
		}
		// What failed has left nothing locked.
		embed(t, etcd.EmbedOptions{Dir: opts.Dir})
	}
}

func TestEmbedHonoursContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := etcd.Embed(ctx, etcd.EmbedOptions{Dir: t.TempDir()}); err == nil {
		s.Close()
		t.Error("opened with a cancelled context")
	}
}
