//go:build linux

package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"skiff/test/seed"
)

var rounds = flag.Int("rounds", 4, "how often the program is killed")

const writers = 6

func pickSeed(t *testing.T) *rand.Rand {
	return seeded(seed.New(t))
}

func seeded(s uint64) *rand.Rand { return rand.New(rand.NewPCG(s, s)) }

// TestKill kills the program again and again under writes and watches.
func TestKill(t *testing.T) {
	random := pickSeed(t)
	s := newServer(t, filepath.Join(t.TempDir(), "data"))
	s.start()
	s.ready()
	l := newLoad(t, s, random)
	for round := range *rounds {
		if random.IntN(4) == 0 { // before it is ready again
			s.kill()
			s.start()
			time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
		} else {
			l.awaitWrites(1 + random.Int64N(300))
			time.Sleep(time.Duration(random.IntN(20000)) * time.Microsecond) // anywhere in the middle of writes
		}
		s.kill()
		s.start()
		s.ready()
		if t.Failed() {
			t.Fatalf("in round %d\n%s", round, s.tail())
		}
	}
	l.awaitWrites(100)
	l.stop()
	l.check()
	s.stop()
	s.start() // what was there is there once more
	s.ready()
	l.check()
	t.Logf("%d kills, %d writes acknowledged, %d answers lost, %d watches", *rounds, l.done.Load(), l.unsure.Load(), l.watcher.opened())
}

// load runs writers and a watcher.
type load struct {
	t       *testing.T
	server  *server
	maps    typedcorev1.ConfigMapInterface
	writers []*writer
	watcher *watcher

	done, unsure              atomic.Int64
	stopWriting, stopWatching context.CancelFunc
	writing, watching         sync.WaitGroup
}

func newLoad(t *testing.T, s *server, random *rand.Rand) *load {
	t.Helper()
	l := &load{t: t, server: s, maps: s.client().CoreV1().ConfigMaps("default")}
	l.watcher = newWatcher(t, s.client().CoreV1().ConfigMaps("default"))
	watchingTime, stopWatching := context.WithCancel(context.Background())
	writingTime, stopWriting := context.WithCancel(context.Background())
	l.stopWatching, l.stopWriting = stopWatching, stopWriting
	l.watching.Go(func() { l.watcher.run(watchingTime) })
	for i := range writers {
		w := newWriter(t, i, s.client().CoreV1().ConfigMaps("default"), rand.New(rand.NewPCG(random.Uint64(), uint64(i))), &l.done, &l.unsure)
		l.writers = append(l.writers, w)
		l.writing.Go(func() { w.run(writingTime) })
	}
	t.Cleanup(func() {
		l.stop()
		l.stopWatching()
		l.watching.Wait()
	})
	return l
}

// awaitWrites waits until some more writes are acknowledged.
func (l *load) awaitWrites(n int64) {
	l.t.Helper()
	want := l.done.Load() + n
	for deadline := time.Now().Add(time.Minute); l.done.Load() < want && !l.t.Failed(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatalf("no progress: %d of %d writes", l.done.Load(), want)
		}
	}
}

// stop stops the writers, each after its last write is settled.
func (l *load) stop() {
	l.stopWriting()
	l.writing.Wait()
}

// check compares the objects, and the watcher's events, with what was written.
func (l *load) check() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := l.maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	there := map[string]string{}
	for _, cm := range list.Items {
		there[cm.Name] = brief(&cm)
	}
	for _, w := range l.writers {
		for _, name := range w.names {
			want := brief(w.now[name])
			got, ok := there[name]
			if !ok {
				got = "absent"
			}
			if got != want {
				l.t.Errorf("%s is %s, must be %s", name, got, want)
			}
			delete(there, name)
		}
	}
	for name, is := range there {
		l.t.Errorf("%s is %s though nobody made it", name, is)
	}
	l.awaitWatcher(ctx)
	l.watcher.mu.Lock()
	defer l.watcher.mu.Unlock()
	for _, w := range l.writers {
		for _, name := range w.names {
			if got, want := fmt.Sprint(l.watcher.deeds[name]), fmt.Sprint(w.deeds[name]); got != want {
				l.t.Errorf("%s\nwatched %s\nwritten %s", name, got, want)
			}
		}
	}
}

// awaitWatcher writes once more, and waits until the watcher has observed it.
func (l *load) awaitWatcher(ctx context.Context) {
	l.t.Helper()
	if l.t.Failed() {
		l.t.FailNow()
	}
	w := l.writers[0]
	const name = "w0-00"
	if w.now[name] == nil {
		w.create(name)
	} else {
		w.update(name)
	}
	last := parse(l.t, w.now[name].ResourceVersion)
	for l.watcher.seen() < last {
		select {
		case <-ctx.Done():
			l.t.Fatalf("the watcher received events up to revision %d of %d, in its watch number %d\n%s", l.watcher.seen(), last, l.watcher.opened(), l.server.tail())
		case <-time.After(time.Millisecond):
		}
	}
}
