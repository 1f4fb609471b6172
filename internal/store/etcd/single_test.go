package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"skiff/internal/store"
)

func embedDir(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Embed(t.Context(), EmbedOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func databaseIn(dir string) string { return filepath.Join(dir, "member", "snap", "db") }
func logIn(dir string) string      { return filepath.Join(dir, "member", "log") }

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o700)
	}
	if err == nil {
		err = os.WriteFile(to, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// everything returns all keys and all events of a store as text.
func everything(t *testing.T, s *Store) string {
	t.Helper()
	var out strings.Builder
	list, err := s.List(t.Context(), "", store.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := s.engine.(*embedded)
	for _, kv := range list.KVs {
		fmt.Fprintf(&out, "%s=%x at %d, lease %d\n", kv.Key, crc32.ChecksumIEEE(kv.Value), kv.Revision, leaseOf(t, e, kv.Key))
	}
	fmt.Fprintf(&out, "%d leases, revision %d\n", len(lessorOf(e).Leases()), list.Revision)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	watch := s.Watch(ctx, "", 1)
	for batch := range watch.Batches() {
		for _, event := range batch.Events {
			sum := crc32.ChecksumIEEE(event.Value)
			event.Value = nil
			fmt.Fprintf(&out, "%+v %x\n", event, sum)
		}
		if batch.Revision >= list.Revision {
			return out.String()
		}
	}
	t.Fatalf("the watch ended before revision %d: %v", list.Revision, watch.Err())
	return ""
}

// TestReplay removes the database and replays it from the log: changes that happened, changes that
// were refused, and leases.
func TestReplay(t *testing.T) {
	t.Parallel()
	dir, lost := t.TempDir(), t.TempDir()
	s := embedDir(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	copyFile(t, databaseIn(dir), databaseIn(lost))

	s = embedDir(t, dir)
	random := rand.New(rand.NewPCG(1, 2))
	happened := map[string]int{}
	for i := range 3000 {
		key := fmt.Sprintf("/%d", random.IntN(40))
		guard := []int64{store.AnyRevision, 0, int64(random.IntN(i + 1)), -2}[random.IntN(4)]
		if guard == -2 { // the right one
			kv, _, _ := s.Get(t.Context(), key)
			guard = kv.Revision
		}
		var err error
		switch random.IntN(6) {
		case 0:
			_, err = s.Delete(t.Context(), key, guard)
		case 1:
			ttl := time.Duration(1+random.IntN(5)) * time.Hour
			_, err = s.Put(t.Context(), key, []byte(fmt.Sprint(i)), store.PutOptions{IfRevision: guard, TTL: ttl})
		case 2:
			for _, l := range lessorOf(s.engine.(*embedded)).Leases() {
				_, err = s.engine.(*embedded).member.(*singleMember).await(t.Context(), &request{change: &change{kind: kindRevoke, lease: int64(l.ID)}})
				break
			}
		default:
			_, err = s.Put(t.Context(), key, []byte(fmt.Sprint(i)), store.PutOptions{IfRevision: guard})
		}
		var conflict *store.ConflictError
		switch {
		case err == nil:
			happened["done"]++
		case errors.As(err, &conflict):
			happened["conflict"]++
		case errors.Is(err, store.ErrNotFound):
			happened["not found"]++
		default:
			t.Fatal(err)
		}
	}
	if happened["done"] < 500 || happened["conflict"] < 500 || happened["not found"] < 10 {
		t.Errorf("not enough of something happened: %v", happened)
	}
	want := everything(t, s)
	logs, _ := filepath.Glob(filepath.Join(logIn(dir), "*.wal"))
	for _, file := range logs {
		copyFile(t, file, filepath.Join(logIn(lost), filepath.Base(file)))
	}
	if got := everything(t, embedDir(t, lost)); got != want {
		t.Errorf("the log makes it\n%s\nwant\n%s", got, want)
	}
}

// TestStorageVersion checks the version that etcd's tools look for in a database.
func TestStorageVersion(t *testing.T) {
	t.Parallel()
	_, e := open(t, EmbedOptions{})
	if got := schema.ReadStorageVersion(e.backend.ReadTx()); got == nil || !strings.HasPrefix(version.Version, fmt.Sprintf("%d.%d.", got.Major, got.Minor)) {
		t.Errorf("the database is of version %v, etcd of %s", got, version.Version)
	}
}

// TestTornLog cuts the last change in the log short, as a power failure can.
func TestTornLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := embedDir(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "db")
	copyFile(t, databaseIn(dir), old)
	s = embedDir(t, dir)
	for i := range 3 {
		if _, err := s.Put(t.Context(), fmt.Sprint("/", i), bytes.Repeat([]byte{'v'}, 3000), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	copyFile(t, old, databaseIn(dir))
	files, _ := filepath.Glob(filepath.Join(logIn(dir), "*.wal"))
	last := files[len(files)-1]
	content, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	end := len(bytes.TrimRight(content, "\x00"))
	clear(content[end-1500:])
	if err := os.WriteFile(last, content, 0o600); err != nil {
		t.Fatal(err)
	}

	s = embedDir(t, dir)
	for i := range 3 {
		_, _, err := s.Get(t.Context(), fmt.Sprint("/", i))
		if whole := i < 2; whole && err != nil || !whole && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("/%d: %v", i, err)
		}
	}
	if _, err := s.Put(t.Context(), "/2", []byte("again"), store.PutOptions{}); err != nil {
		t.Error(err)
	}
	want := everything(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := everything(t, embedDir(t, dir)); got != want {
		t.Errorf("opened again:\n%s\nwant\n%s", got, want)
	}
}

// TestLogOfAnotherDatabase puts a database beside a log that does not go with it.
func TestLogOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	dir, old := t.TempDir(), filepath.Join(t.TempDir(), "db")
	s := embedDir(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	copyFile(t, databaseIn(dir), old)
	s = embedDir(t, dir)
	for i := range 10 {
		if _, err := s.Put(t.Context(), fmt.Sprint("/", i), bytes.Repeat([]byte{'v'}, 1<<20), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		s.engine.(*embedded).backend.ForceCommit() // so that the beginning of the log is not needed any more
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(t.TempDir(), "db")
	copyFile(t, databaseIn(dir), whole)
	copyFile(t, old, databaseIn(dir))
	if s, err := Embed(t.Context(), EmbedOptions{Dir: dir}); err == nil || !strings.Contains(err.Error(), "do not belong together") {
		t.Errorf("a database older than its log: %v", err)
		s.Close()
	}
	if err := os.WriteFile(databaseIn(dir), []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Embed(t.Context(), EmbedOptions{Dir: dir}); err == nil || !strings.Contains(err.Error(), "open the database") {
		t.Errorf("no database: %v", err)
	}
	copyFile(t, whole, databaseIn(dir))
	if kv, _, err := embedDir(t, dir).Get(t.Context(), "/9"); err != nil || len(kv.Value) != 1<<20 {
		t.Errorf("%d bytes, %v", len(kv.Value), err)
	}
}

// TestLogStaysSmall writes much more than the log may hold.
func TestLogStaysSmall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := embedDir(t, dir)
	value := bytes.Repeat([]byte{'v'}, 100_000)
	for i := range 600 {
		if _, err := s.Put(t.Context(), fmt.Sprint("/", i%10), value, store.PutOptions{IfRevision: store.AnyRevision}); err != nil {
			t.Fatal(err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(logIn(dir), "*"))
	total := int64(0)
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > (maxLogFiles+3)*walSegmentBytes { // one more that is being filled, one that will be, and what files are larger
		t.Errorf("%d bytes in %v", total, files)
	}
	want := everything(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := everything(t, embedDir(t, dir)); got != want {
		t.Error("it is not the same when opened again")
	}
}

func FuzzDecodeChange(f *testing.F) {
	for _, c := range []change{
		{kind: kindPut, key: []byte("/a"), value: []byte("v"), ifRevision: -1, lease: 7},
		{kind: kindDelete, key: []byte("/a"), ifRevision: 12},
		{kind: kindGrant, lease: 1 << 60, seconds: 3600},
		{kind: kindRevoke, lease: 1},
	} {
		f.Add(c.encode())
	}
	f.Add([]byte{})
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		c, err := decodeChange(encoded)
		if err != nil {
			return
		}
		again, err := decodeChange(c.encode())
		if err != nil || fmt.Sprint(*again) != fmt.Sprint(*c) {
			t.Errorf("%v becomes %v, %v", c, again, err)
		}
	})
}

// TestClasses fills a database with writes of low classes: more important ones are still accepted, up to the quota.
func TestClasses(t *testing.T) {
	t.Parallel()
	s, err := Embed(t.Context(), EmbedOptions{Dir: t.TempDir(), QuotaBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	value := bytes.Repeat([]byte("x"), 20_000)
	fill := func(class store.Class) (written int) {
		for ; ; written++ {
			_, err := s.Put(t.Context(), fmt.Sprintf("/%d/%d", class, written), value, store.PutOptions{Class: class})
			if errors.Is(err, store.ErrFull) {
				return written
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	disposable, ordinary := fill(store.Disposable), fill(store.Ordinary)
	_, inUse, err := s.Size(t.Context())
	if err != nil || disposable < 100 || ordinary < 20 || inUse > 16<<20 {
		t.Errorf("%d disposable and %d ordinary writes, %d bytes in use, %v", disposable, ordinary, inUse, err)
	}
	if again := fill(store.Disposable); again > 0 {
		t.Errorf("%d disposable writes are accepted after ordinary ones were refused", again)
	}
	if _, err := s.Put(t.Context(), "/lease", []byte("node"), store.PutOptions{Class: store.Critical}); err != nil {
		t.Errorf("a critical write is refused: %v", err)
	}
	if _, err := s.Delete(t.Context(), "/1/0", store.AnyRevision); err != nil {
		t.Errorf("a delete is refused: %v", err)
	}
}
