//go:build linux

package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/store"
	"skiff/internal/store/etcd"
)

func bytesReader(b []byte) io.Reader { return bytes.NewReader(b) }

const (
	thingDefinitions = 4
	writersEach      = 4  // 16 writers
	watchersEach     = 25 // 100 watchers
)

// TestDefinitions changes, deletes and creates definitions under 16 writers and 100 watchers. Each acknowledged write is there until its definition goes; each
// watcher is told of everything once, in order, and of nothing of an earlier definition; in the end the store has nothing of what was deleted.
func TestDefinitions(t *testing.T) {
	random := pickSeed(t)
	s := newServer(t, filepath.Join(t.TempDir(), "data"))
	s.start()
	s.ready()
	api := s.raw()
	var list struct{ Metadata metav1.ListMeta }
	api.must(t, "GET", definitionsPath, nil).decode(t, &list)
	begun := parse(t, list.Metadata.ResourceVersion)

	hooks := newHookServer(t, map[string]http.HandlerFunc{"/slow": reviewed(func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse) {
		if rand.N(5) == 0 {
			time.Sleep(rand.N(300 * time.Millisecond)) // so that definitions are deleted while objects are being created
		}
	})})
	api.must(t, "POST", validatingPath, hooks.validating("slow", "/slow", thingGroup, "*", "*"))

	var all []*thingLoad
	for n := range thingDefinitions {
		all = append(all, newThingLoad(t, s, n, random))
	}
	var changing sync.WaitGroup
	for _, l := range all {
		changing.Go(func() {
			l.definition.rounds(*rounds)
			l.definition.stopped.Store(true)
		})
	}
	changing.Wait()
	for _, l := range all {
		l.writing.Wait()
		l.awaitWatchers()
	}
	if t.Failed() {
		t.Fatal(s.tail())
	}
	incarnations := incarnationsOf(t, api, begun)
	changes, refused, writes, expired := map[string]int{}, map[string]int{}, 0, 0
	checked := thingHistory{}.checked
	for _, l := range all {
		l.definition.checkServed()
		h := l.check(incarnations[l.definition.name()])
		checked.sessions, checked.events, checked.lists = checked.sessions+h.checked.sessions, checked.events+h.checked.events, checked.lists+h.checked.lists
		add(changes, l.definition.changes)
		for _, w := range l.writers {
			writes += len(w.writes)
			add(refused, w.refused)
		}
		for _, w := range l.watchers {
			expired += w.expired
		}
	}
	for _, l := range all {
		api.must(t, "DELETE", l.definition.path(), nil)
	}
	until(t, "the definitions are gone", func() string {
		for _, l := range all {
			if got := api.call("GET", l.definition.path(), nil); got.code != 404 {
				return got.String()
			}
		}
		return ""
	})
	s.stop()
	nothingStored(t, s.data, "/registry/"+thingGroup+"/")
	t.Logf("%v; %d writes acknowledged, %v refused while definitions were replaced; %d watches with %d events, %d lists, %d times expired", changes, writes, refused,
		checked.sessions, checked.events, checked.lists, expired)
}

func add(to, from map[string]int) {
	for name, n := range from {
		to[name] += n
	}
}

// thingLoad is a definition with those who write and watch its objects.
type thingLoad struct {
	t          *testing.T
	definition *thingDefinition
	writers    []*thingWriter
	watchers   []*thingWatcher
	writing    sync.WaitGroup
	watching   sync.WaitGroup
	stop       context.CancelFunc
}

func newThingLoad(t *testing.T, s *server, number int, random *rand.Rand) *thingLoad {
	t.Helper()
	fork := func() *rand.Rand { return rand.New(rand.NewPCG(random.Uint64(), uint64(number))) }
	l := &thingLoad{t: t, definition: &thingDefinition{t: t, api: s.raw(), random: fork(), number: number, changes: map[string]int{}}}
	l.definition.turn.Store(-1)
	l.definition.create()
	writing, watching := s.raw(), s.raw()
	for i := range writersEach {
		l.writers = append(l.writers, &thingWriter{t: t, api: writing, of: l.definition, number: i, random: fork(), now: map[string]*thing{}, answers: map[string][]string{}, refused: map[string]int{}})
	}
	for i := range watchersEach {
		w := &thingWatcher{t: t, api: watching, of: l.definition, random: fork(), version: fmt.Sprint("v", 1+i%2), faithful: i < 5}
		if i%3 == 2 {
			w.part = fmt.Sprint(i % 4)
		}
		l.watchers = append(l.watchers, w)
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	for _, w := range l.watchers {
		l.watching.Go(func() { w.run(ctx) })
	}
	for _, w := range l.writers {
		l.writing.Go(w.run)
	}
	t.Cleanup(func() {
		l.definition.stopped.Store(true)
		l.writing.Wait()
		l.stop()
		l.watching.Wait()
	})
	return l
}

// awaitWatchers waits until the watchers have been told of the last write, and stops them.
func (l *thingLoad) awaitWatchers() {
	l.t.Helper()
	for _, w := range l.writers {
		w.resolve(l.definition.turn.Load())
	}
	last := map[string]int64{}
	for _, w := range l.writers {
		for _, is := range w.now {
			for _, part := range []string{"", is.Metadata.Labels["part"]} {
				last[part] = max(last[part], parse(l.t, is.Metadata.ResourceVersion))
			}
		}
	}
	for i, w := range l.watchers {
		until(l.t, fmt.Sprintf("watcher %d of %s was told of the last write", i, l.definition.plural()), func() string {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.last < last[w.part] && !l.t.Failed() {
				return fmt.Sprintf("%d of %d", w.last, last[w.part])
			}
			return ""
		})
	}
	l.stop()
	l.watching.Wait()
}

// check compares what everybody was told, and what is there.
func (l *thingLoad) check(incarnations []incarnation) *thingHistory {
	l.t.Helper()
	h := &thingHistory{t: l.t, name: l.definition.name(), incarnations: incarnations}
	h.collect(l.writers, l.watchers)
	for i, w := range l.watchers {
		h.check(i, w)
	}
	want := h.last()
	for _, version := range []string{"v1", "v2"} {
		var list struct{ Items []thing }
		l.definition.api.must(l.t, "GET", l.definition.objects(version, true), nil).decode(l.t, &list)
		got := map[string]string{}
		for i := range list.Items {
			got[list.Items[i].Metadata.Name] = brief3(list.Items[i].event(""))
		}
		wanted := map[string]string{}
		for name, e := range want {
			wanted[name] = brief3(e)
		}
		if !maps.Equal(got, wanted) {
			l.t.Errorf("%s has %v, must have %v", h.name, got, wanted)
		}
	}
	for _, w := range l.writers {
		for name, is := range w.now {
			if e := want[name]; e.value != is.Spec.V || e.uid != is.Metadata.UID {
				l.t.Errorf("%s was last written as %s@%s, and is %v", name, is.Spec.V, is.Metadata.ResourceVersion, e)
			}
		}
	}
	return h
}

func brief3(e thingEvent) string { return fmt.Sprintf("%s@%d", e.value, e.revision) }

// nothingStored checks that the store of a server that has stopped has no keys with a prefix.
func nothingStored(t *testing.T, data, prefix string) {
	t.Helper()
	opened, err := etcd.Embed(t.Context(), etcd.EmbedOptions{Dir: filepath.Join(data, "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	page, err := opened.List(t.Context(), prefix, store.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range page.KVs {
		t.Errorf("the store still has %s: %s", kv.Key, kv.Value)
	}
}
