package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"

	"skiff/internal/store"
)

// fastDir returns a directory that is synced quickly, if there is one.
func fastDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "skiff-store-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// sampleLog is a log of several batches, each synced before the next, with the offset at which each change ends.
type sampleLog struct {
	content []byte // of its one file, without most of what is allocated ahead
	changes []*change
	ends    []int64 // offset after each change
	batches []int64 // offset at which each batch begins
}

func makeSampleLog(t *testing.T) *sampleLog {
	t.Helper()
	dir := filepath.Join(fastDir(t), "log")
	g, _, err := openLog(zap.NewNop(), dir, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := &sampleLog{}
	sizes := []int{10, 700, 1400, 90, 0, 2000}
	for i, size := range sizes {
		var batch []*change
		for j := range 1 + i%2 {
			// Zeros in the value look like a sector that was never written.
			value := append(append(bytes.Repeat([]byte{'v'}, size/2), make([]byte, size/2)...), 'e')
			batch = append(batch, &change{kind: kindPut, key: fmt.Appendf(nil, "/%d/%d", i, j), value: value, ifRevision: store.AnyRevision})
		}
		if _, err := g.append(batch); err != nil {
			t.Fatal(err)
		}
		s.changes = append(s.changes, batch...)
	}
	if err := g.close(); err != nil {
		t.Fatal(err)
	}
	name := onlyLogFile(t, dir)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	decoder, rec, before := wal.NewDecoder(fileutil.NewFileReader(f)), &walpb.Record{}, int64(0)
	for decoder.Decode(rec) == nil {
		switch rec.GetType() {
		case wal.CrcType:
			decoder.UpdateCRC(rec.GetCrc())
		case wal.EntryType:
			s.ends = append(s.ends, decoder.LastOffset())
		case wal.StateType:
			s.batches = append(s.batches, before)
		}
		before = decoder.LastOffset()
	}
	if len(s.ends) != len(s.changes) {
		t.Fatalf("%d changes were written and %d are in the log", len(s.changes), len(s.ends))
	}
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	s.content = content[:before+8192]
	return s
}

func onlyLogFile(t *testing.T, dir string) string {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "*.wal"))
	if len(files) != 1 {
		t.Fatalf("the log has the files %v, want one", files)
	}
	return files[0]
}

// open opens a log with the given content and returns the number of changes in it. To allocate a file ahead takes most of the time
// of opening it for writing, so that mostly it is only read.
func (s *sampleLog) open(t *testing.T, parent string, content []byte, write bool) (int, error) {
	t.Helper()
	dir := filepath.Join(parent, "log")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%016x-%016x.wal", 0, 0)), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if !write {
		scan, err := scanLog(dir)
		if err != nil {
			return 0, withAdvice(err, dir, 0)
		}
		return scan.entries, nil
	}
	for range 2 { // opening it again finds the same
		g, changes, err := openLog(zap.NewNop(), dir, 0, 1)
		if err != nil {
			return 0, err
		}
		if err := g.close(); err != nil {
			t.Fatal(err)
		}
		for i := range changes {
			if !bytes.Equal(changes[i].encode(), s.changes[i].encode()) {
				return 0, fmt.Errorf("change %d is another", i+1)
			}
		}
		if len(changes) == len(s.changes) {
			return len(changes), nil
		}
	}
	g, changes, err := openLog(zap.NewNop(), dir, 0, 1)
	if err != nil {
		return 0, err
	}
	return len(changes), g.close()
}

// TestLogCutAtEveryByte cuts the log at every byte of its last batches, as a process that is killed or a machine that loses power
// leaves it: the file ends there, or what follows is still zero. The log holds the changes that end before the cut.
func TestLogCutAtEveryByte(t *testing.T) {
	// Not parallel: a process that another test forks holds the lock of the file for a moment.
	s := makeSampleLog(t)
	dir := fastDir(t)
	for cut := s.batches[len(s.batches)-3]; cut <= s.ends[len(s.ends)-1]; cut++ {
		whole := 0
		for whole < len(s.ends) && s.ends[whole] <= cut {
			whole++
		}
		zeroed := bytes.Clone(s.content)
		clear(zeroed[cut:])
		for how, content := range map[string][]byte{"ends": s.content[:cut], "is zero": zeroed} {
			want := whole
			if n := bytes.TrimRight(s.content[:s.ends[min(whole, len(s.ends)-1)]], "\x00"); how == "is zero" && whole < len(s.ends) && cut >= int64(len(n)) {
				want++ // only padding was cut
			}
			if got, err := s.open(t, dir, content, cut%37 == 0); err != nil || got != want {
				t.Fatalf("the log %s from byte %d on: it holds %d changes, %v; want %d", how, cut, got, err, want)
			}
		}
	}
}

// TestLogDamagedInTheMiddle changes every byte, and zeroes every sector, of a log before its last batch. Either the log is
// refused, or it holds everything that it did: nothing that was acknowledged is dropped.
func TestLogDamagedInTheMiddle(t *testing.T) {
	// Not parallel: a process that another test forks holds the lock of the file for a moment.
	s := makeSampleLog(t)
	dir := fastDir(t)
	refused := 0
	try := func(what string, content []byte) {
		t.Helper()
		_, err := s.open(t, dir, content, false)
		if err == nil {
			if got, err := s.open(t, dir, content, true); err != nil || got != len(s.changes) {
				t.Errorf("%s: it is opened and holds %d changes, %v; want %d", what, got, err, len(s.changes))
			}
			return
		}
		refused++
		if !strings.Contains(err.Error(), "Keep a copy of "+dir) || !strings.Contains(err.Error(), "snapshot restore") {
			t.Errorf("%s: the error does not say what to do: %v", what, err)
		}
	}
	lastBatch := s.batches[len(s.batches)-1]
	for at := range lastBatch {
		for _, flip := range []byte{0x01, 0x80, 0xff} {
			content := bytes.Clone(s.content)
			content[at] ^= flip
			try(fmt.Sprintf("byte %d changed by %#x", at, flip), content)
			if t.Failed() {
				return
			}
		}
	}
	if tried := int(3 * lastBatch); refused < tried*9/10 {
		t.Errorf("%d of %d logs with a changed byte are refused", refused, tried)
	}
	for at := int64(0); at+sectorBytes <= lastBatch; at += sectorBytes {
		content := bytes.Clone(s.content)
		if clear(content[at : at+sectorBytes]); bytes.Equal(content, s.content) {
			continue
		}
		refused = 0
		try(fmt.Sprintf("sector at %d zeroed", at), content)
		if refused != 1 {
			t.Errorf("the sector at %d is zero, and the log is opened", at)
		}
	}
}

// TestLogEndsBeforeDatabase removes the end of a log whose changes the database holds: the disk lost what it had synced.
func TestLogEndsBeforeDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := embedDir(t, dir)
	for i := range 5 {
		if _, err := s.Put(t.Context(), fmt.Sprint("/", i), []byte("v"), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file := onlyLogFile(t, logIn(dir))
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	clear(content[len(bytes.TrimRight(content, "\x00"))-3:])
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // refusing changes nothing
		if s, err := Embed(t.Context(), EmbedOptions{Dir: dir}); err == nil {
			s.Close()
			t.Fatal("a log that ends before its database is opened")
		} else if !strings.Contains(err.Error(), "ends with 4") || !strings.Contains(err.Error(), "move "+logIn(dir)+" away") {
			t.Errorf("the error does not say what is wrong and what to do: %v", err)
		}
	}
	// What the error advises.
	if err := os.Rename(logIn(dir), logIn(dir)+".kept"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := embedDir(t, dir).Get(t.Context(), "/4"); err != nil {
		t.Errorf("what the database holds: %v", err)
	}
}

// TestLogNeverWritten opens a database whose log was created by a process that was killed before it wrote to it.
func TestLogNeverWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := embedDir(t, dir)
	if _, err := s.Put(t.Context(), "/a", []byte("v"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(logIn(dir)); err != nil {
		t.Fatal(err)
	}
	empty, err := wal.Create(zap.NewNop(), logIn(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := empty.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := embedDir(t, dir).Get(t.Context(), "/a"); err != nil {
		t.Error(err)
	}
}

// failingLessor fails to revoke with an error that no change is refused with.
type failingLessor struct{ lease.Lessor }

var errDisk = errors.New("the disk is on fire")

func (failingLessor) Revoke(lease.LeaseID) error { return errDisk }

// TestReplayRefuses has a change fail when it is applied from the log, which it had not done before.
func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := serverConfig(EmbedOptions{Dir: dir, QuotaBytes: DefaultQuotaBytes}, zap.NewNop())
	// Without the goroutines of an open store, which use the lessor.
	l := &singleMember{logger: cfg.Logger, path: cfg.BackendPath(), mmapBytes: mmapBytes(cfg.QuotaBackendBytes)}
	err := os.MkdirAll(cfg.SnapDir(), 0o700)
	if err == nil {
		err = l.openDatabase(cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	whole := l.lessor.Lessor
	l.lessor.Lessor = failingLessor{whole}
	changes := []numberedChange{
		{1, &change{kind: kindGrant, lease: 7, seconds: 100}},
		{2, &change{kind: kindGrant, lease: 7, seconds: 100}},                                   // refused before, too: it exists
		{3, &change{kind: kindPut, key: []byte("/a"), lease: 8, ifRevision: store.AnyRevision}}, // it does not
		{4, &change{kind: kindPut, key: []byte("/b"), ifRevision: 77}},                          // the guard does not hold
		{5, &change{kind: kindPut, key: []byte("/c"), lease: 7, ifRevision: store.AnyRevision}},
		{6, &change{kind: kindRevoke, lease: 7}},
		{7, &change{kind: kindPut, key: []byte("/d"), ifRevision: store.AnyRevision}},
	}
	err = l.replay(t.Context(), changes)
	if !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "change 6") {
		t.Errorf("a change that cannot be applied: %v", err)
	}
	l.lessor.Lessor = whole
	if l.backend.ForceCommit(); l.applied != 5 {
		t.Errorf("the database says that it holds change %d, want 5", l.applied)
	}
	for key, want := range map[string]int{"/a": 0, "/b": 0, "/c": 1, "/d": 0} {
		if found, err := l.kv.Range(context.Background(), []byte(key), nil, mvcc.RangeOptions{}); err != nil || len(found.KVs) != want {
			t.Errorf("%s is there %d times, %v; want %d", key, len(found.KVs), err, want)
		}
	}
}
