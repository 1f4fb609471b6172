package etcd_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"skiff/internal/store/etcd"
)

const (
	killDirVariable    = "SKIFF_STORE_KILL_DIR"
	killListenVariable = "SKIFF_STORE_KILL_LISTEN" // what the process listens on, if anything
)

// TestKillChild is not a test: it is the process that TestKill kills.
func TestKillChild(t *testing.T) {
	dir := os.Getenv(killDirVariable)
	if dir == "" {
		t.Skip("started by TestKill only")
	}
	fmt.Println("opening")
	s := embed(t, etcd.EmbedOptions{Dir: dir, Listen: os.Getenv(killListenVariable)})
	if os.Getenv(killListenVariable) == "" {
		go func() { // it is also killed while it defragments the database
			for t.Context().Err() == nil {
				if err := s.Defragment(t.Context()); err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
			}
		}()
	}
	var mu sync.Mutex // lines must not mix
	for n := range 8 {
		go func() {
			for i := 0; ; i++ {
				key, value := fmt.Sprintf("/%d/%d", n, i%50), fmt.Sprintf("%d-%d", os.Getpid(), i)
				revision, err := s.Put(t.Context(), key, []byte(value), anyRevision)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				fmt.Fprintf(os.Stdout, "ack %s %s %d\n", key, value, revision)
				mu.Unlock()
			}
		}()
	}
	select {} // until killed
}

// TestKill kills a process that writes, at random moments, and requires every write that it acknowledged.
func TestKill(t *testing.T) {
	t.Parallel()
	if os.Getenv(killDirVariable) != "" {
		t.Skip("in the child")
	}
	dir := t.TempDir()
	type ack struct {
		value    string
		revision int64
	}
	acked := map[string]ack{}
	newest := int64(0)
	for round := range 4 {
		child := exec.Command(os.Args[0], "-test.run=^TestKillChild$")
		child.Env = append(os.Environ(), killDirVariable+"="+dir)
		child.Stderr = os.Stderr
		stdout, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := 0
		reader := bufio.NewReader(stdout)
		var deadline <-chan time.Time
		for {
			line, err := reader.ReadString('\n')
			if err == io.EOF {
				break // a last line without its end was not acknowledged
			}
			if err != nil {
				t.Fatal(err)
			}
			var key string
			var a ack
			if n, _ := fmt.Sscanf(line, "ack %s %s %d\n", &key, &a.value, &a.revision); n != 3 {
				continue // what the testing package prints
			}
			if a.revision > acked[key].revision {
				acked[key] = a
			}
			newest = max(newest, a.revision)
			if lines++; lines == 1 {
				delay := time.Duration(rand.IntN(200)) * time.Millisecond
				deadline = time.After(delay)
				go func() {
					<-deadline
					child.Process.Kill()
				}()
			}
		}
		_ = child.Wait()
		if lines == 0 {
			t.Fatal("the child acknowledged nothing")
		}

		s := embed(t, etcd.EmbedOptions{Dir: dir})
		now, err := s.Revision(t.Context())
		if err != nil || now < newest {
			t.Errorf("round %d: revision %d (%v), acknowledged was %d", round, now, err, newest)
		}
		for key, a := range acked {
			kv, _, err := s.Get(t.Context(), key)
			switch {
			case err != nil:
				t.Errorf("round %d: %s is lost: %v", round, key, err)
			case kv.Revision < a.revision:
				t.Errorf("round %d: %s is at %d, acknowledged was %d", round, key, kv.Revision, a.revision)
			case kv.Revision == a.revision && string(kv.Value) != a.value:
				t.Errorf("round %d: %s is %q, acknowledged was %q", round, key, kv.Value, a.value)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		t.Logf("round %d: %d writes acknowledged and found", round, lines)
	}
}

// TestKillAtFirstStart kills a process while it opens a store for the first time. The next one must be able to.
func TestKillAtFirstStart(t *testing.T) {
	t.Parallel()
	seed := embed(t, etcd.EmbedOptions{Dir: t.TempDir()})
	put(t, seed, "/restored", "1")
	snapshot := save(t, seed)
	for round := range 12 {
		dir := filepath.Join(t.TempDir(), "data")
		restored := round%2 == 1
		if restored {
			if err := etcd.Restore(snapshot, dir); err != nil {
				t.Fatal(err)
			}
		}
		killWhileOpening(t, dir, "", 8*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		s, err := etcd.Embed(ctx, etcd.EmbedOptions{Dir: dir})
		cancel()
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if restored && value(t, s, "/restored") != "1" {
			t.Errorf("round %d: the restored key is lost", round)
		}
		put(t, s, "/a", "1")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// killWhileOpening starts a process that opens a store, and kills it some time later, at most within.
func killWhileOpening(t *testing.T, dir, listen string, within time.Duration) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^TestKillChild$")
	child.Env = append(os.Environ(), killDirVariable+"="+dir, killListenVariable+"="+listen)
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() == "opening" {
			time.Sleep(rand.N(within))
			child.Process.Kill()
			break
		}
	}
	_ = child.Wait()
}
