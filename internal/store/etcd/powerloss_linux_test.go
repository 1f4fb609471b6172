package etcd

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"skiff/internal/store"
	"skiff/test/seed"
)

const (
	tracedDirVariable = "SKIFF_STORE_TRACED_DIR"
	tracedWrites      = 120 // number of writes that the child makes
)

// TestTracedChild is not a test: it is the process that TestPowerLoss and TestDiskFull trace. It opens a store, writes, and says which
// writes were acknowledged.
func TestTracedChild(t *testing.T) {
	dir := os.Getenv(tracedDirVariable)
	if dir == "" {
		t.Skip("started by other tests only")
	}
	s, err := Embed(t.Context(), EmbedOptions{Dir: dir, Log: slog.New(slog.NewTextHandler(retryWriter{os.Stderr}, nil))})
	if err != nil {
		say("failed to open: %v", err)
		os.Exit(3)
	}
	say("opened")
	// Enough for a second file of the log, so that the first is removed.
	const writers, writes, size = 4, tracedWrites / 4, 90_000
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range writes {
				if w == 0 && i == 5 {
					// Twice: the second knows that the first is over, and the log is marked and trimmed from then on.
					s.engine.(*embedded).backend.ForceCommit()
					s.engine.(*embedded).backend.ForceCommit()
				}
				if w == 0 && i == 20 {
					if err := s.Defragment(t.Context()); err != nil {
						say("failed to shrink: %v", err)
					}
				}
				key := fmt.Sprintf("/%d/%d", w, i%10)
				value := bytes.Repeat(fmt.Appendf(nil, "%02d,", i), size/3)
				revision, err := s.Put(t.Context(), key, value, store.PutOptions{IfRevision: store.AnyRevision})
				if err != nil {
					say("failed to put: %v", err)
					continue
				}
				say("ack %s %d %d", key, revision, i)
			}
		})
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		say("failed to close: %v", err)
		os.Exit(4)
	}
	say("closed")
	os.Exit(0)
}

// say writes a line with one call.
func say(format string, args ...any) {
	_, _ = retryWriter{os.Stdout}.Write(fmt.Appendf(nil, format+"\n", args...))
}

// retryWriter is a file to which a failed write is retried.
type retryWriter struct{ f *os.File }

func (s retryWriter) Write(p []byte) (int, error) {
	for range 100 {
		if n, err := s.f.Write(p); err == nil {
			return n, nil
		}
	}
	return 0, errors.New("it fails again and again")
}

// acknowledged holds the writes that a child printed as acknowledged: for each key the newest revision and its value.
type acknowledged map[string]ackedWrite

type ackedWrite struct {
	revision int64
	i        int
}

func (a acknowledged) add(line string) {
	var key string
	var w ackedWrite
	if n, _ := fmt.Sscanf(line, "ack %s %d %d", &key, &w.revision, &w.i); n == 3 && w.revision > a[key].revision {
		a[key] = w
	}
}

// missing opens a store and returns the acknowledged writes that it lacks.
func (a acknowledged) missing(t *testing.T, dir string) []string {
	t.Helper()
	s, err := Embed(t.Context(), EmbedOptions{Dir: dir})
	if err != nil {
		return []string{err.Error()}
	}
	defer s.Close()
	var lost []string
	for key, w := range a {
		kv, _, err := s.Get(t.Context(), key)
		switch {
		case err != nil:
			lost = append(lost, fmt.Sprintf("%s: %v", key, err))
		case kv.Revision < w.revision:
			lost = append(lost, fmt.Sprintf("%s is at %d, acknowledged was %d", key, kv.Revision, w.revision))
		case kv.Revision == w.revision && !bytes.HasPrefix(kv.Value, fmt.Appendf(nil, "%02d,", w.i)):
			lost = append(lost, fmt.Sprintf("%s is %.10q, acknowledged was %d", key, kv.Value, w.i))
		}
	}
	if _, err := s.Put(t.Context(), "/after", nil, store.PutOptions{}); err != nil {
		lost = append(lost, err.Error())
	}
	return lost
}

// TestPowerLoss records every write and sync of a process, and makes for many moments what its disk would hold had the machine lost
// its power: what was synced, and any part of the rest. Every write that was acknowledged before must be there. The same trace with
// some syncs left out must lose something: the test notices a sync that is missing in the code.
func TestPowerLoss(t *testing.T) {
	root, trace := t.TempDir(), filepath.Join(t.TempDir(), "trace")
	child := straceCommand(t, []string{"-f", "-y", "-xx", "-s", "100000000", "--seccomp-bpf", "-o", trace, "-e", "trace=" + tracedCalls},
		[]string{os.Args[0], "-test.run=^TestTracedChild$"})
	child.Env = append(os.Environ(), tracedDirVariable+"="+filepath.Join(root, "data"))
	if out, err := child.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("\nclosed\n")) || bytes.Contains(out, []byte("failed to shrink")) {
		t.Fatalf("%v\n%.2000s", err, out)
	}
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 0))

	suffix := func(suffix string) func(string) bool {
		return func(path string) bool { return strings.HasSuffix(path, suffix) }
	}
	cases := []*powerloss{
		{name: "all syncs", ignore: func(string) bool { return false }},
		{name: "no sync of the log", ignore: suffix(".wal"), loses: true},
		{name: "no sync of the log's directory", ignore: suffix(filepath.Join("member", "log")), loses: true},
		{name: "no sync of the database", ignore: func(path string) bool { return strings.Contains(path, "/snap/db") }, loses: true},
		{name: "no sync of the database's directory", ignore: suffix("snap"), loses: true},
		{name: "no sync of the data directory's parent", ignore: func(path string) bool { return path == root }, loses: true},
	}
	for _, c := range cases {
		c.disk = newDisk(root)
		c.disk.ignore = c.ignore
	}
	acked, acks := acknowledged{}, 0
	began := func(call tracedCall) {
		for _, c := range cases {
			c.disk.begin(t, call)
		}
		if call.name != "write" {
			return
		}
		if fd, _ := call.fd(t, 0); fd != "1" {
			return
		}
		line := string(call.bytes(t, 1))
		if !strings.HasPrefix(line, "ack ") {
			return
		}
		acked.add(line)
		acks++
		for _, c := range cases {
			if !c.loses && (acks%12 == 1 || acks == tracedWrites) {
				c.lose(t, acked, fmt.Sprintf("after %d acknowledged writes, nothing more", acks), func() bool { return false })
				c.lose(t, acked, fmt.Sprintf("after %d acknowledged writes, some of the rest", acks), func() bool { return random.IntN(2) == 0 })
			} else if c.loses && (acks == 1 || acks == tracedWrites) {
				c.lose(t, acked, "", func() bool { return false })
			}
		}
	}
	readTrace(t, trace, began, func(call tracedCall) {
		for _, c := range cases {
			c.disk.apply(t, call)
		}
	})
	if acks != tracedWrites {
		t.Errorf("the trace has %d acknowledged writes, want %d", acks, tracedWrites)
	}
	for _, c := range cases {
		if c.loses != (c.lost > 0) {
			t.Errorf("%s: %d acknowledged writes or whole stores are lost", c.name, c.lost)
		}
	}
}

// powerloss is a disk on which some syncs do nothing.
type powerloss struct {
	name   string
	ignore func(path string) bool
	loses  bool // whether it must lose something
	disk   *disk
	lost   int
}

// lose opens what is left on the disk when the power is lost at this moment.
func (p *powerloss) lose(t *testing.T, acked acknowledged, when string, lucky func() bool) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	p.disk.write(t, dir, lucky)
	for _, problem := range acked.missing(t, filepath.Join(dir, "data")) {
		if p.lost++; !p.loses {
			t.Errorf("%s: %s", when, problem)
		}
	}
}
