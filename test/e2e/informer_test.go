package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/store/etcd"
	"skiff/skifftest"
)

// The load: each writer creates its objects, updates every one and deletes every second, 10,000 writes in all. Twice, after a third and two
// thirds of them, the server is killed with its store and started again.
const (
	writers = 16
	objects = 4000
	writes  = objects + objects + objects/2
	kills   = 2
)

// TestInformerSeesEverything: two clients watch the load. One is a client-go informer, which must observe each object's versions in order
// and end with the right ones. client-go resumes a broken watch after the last event, except after some errors: then it
// lists again, and misses changes of objects deleted meanwhile. The other is a watch that is always resumed: it must observe
// every single write, once and in order.
func TestInformerSeesEverything(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir)
	t.Cleanup(func() { store.Close() })
	server := skifftest.Start(t, skifftest.WithStore(store))
	load := &load{client: clientFor(t, server), last: map[string]version{}}

	informed := follow(t, server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resumed := newResuming(t, clientFor(t, server).CoreV1().ConfigMaps("default"))
	var watching sync.WaitGroup
	watching.Go(func() { resumed.run(ctx, t) })

	began := time.Now()
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() { load.run(ctx, t, w) })
	}
	for kill := range kills {
		wait(t, "the next third is written", func() bool { return load.done.Load() > int64(writes*(kill+1)/(kills+1)) })
		server.Kill()
		store.Close()
		store = open(t, dir)
		server.Restart(skifftest.WithStore(store))
	}
	writing.Wait()
	t.Logf("%d writes, %d of them with an answer lost, in %v", load.done.Load(), load.unsure.Load(), time.Since(began).Round(time.Millisecond))
	if t.Failed() {
		return
	}
	resumed.check(t, load)
	informed.check(t, load)
	cancel()
	watching.Wait()
}

func open(t *testing.T, dir string) *etcd.Store {
	t.Helper()
	store, err := etcd.Embed(t.Context(), etcd.EmbedOptions{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func clientFor(t *testing.T, server *skifftest.Server) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wait(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// version is one state of an object: how often it was written, and the revision of the write.
type version struct {
	step     string // "1", "2", or "2 deleted"
	revision string // empty if the answer was lost
}

// load runs the writers, and records the expected state at the end.
type load struct {
	client       kubernetes.Interface
	done, unsure atomic.Int64

	mu   sync.Mutex
	last map[string]version
}

func (l *load) run(ctx context.Context, t *testing.T, writer int) {
	maps := l.client.CoreV1().ConfigMaps("default")
	for i := writer; i < objects; i += writers {
		name := fmt.Sprintf("cm-%04d", i)
		made := l.write(ctx, t, name, "1", func() (*corev1.ConfigMap, error) {
			return maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"step": "1"}}, metav1.CreateOptions{})
		})
		if made == nil {
			return
		}
		made.Data["step"] = "2"
		if l.write(ctx, t, name, "2", func() (*corev1.ConfigMap, error) { return maps.Update(ctx, made, metav1.UpdateOptions{}) }) == nil {
			return
		}
		if i%2 == 0 {
			l.write(ctx, t, name, "2 deleted", func() (*corev1.ConfigMap, error) { return nil, maps.Delete(ctx, name, metav1.DeleteOptions{}) })
		}
	}
}

// write writes the next state of an object, which only this writer writes. If the answer was lost it reads the object to find out whether the write happened.
func (l *load) write(ctx context.Context, t *testing.T, name, step string, try func() (*corev1.ConfigMap, error)) *corev1.ConfigMap {
	maps := l.client.CoreV1().ConfigMaps("default")
	obj, err := try()
	if err != nil {
		l.unsure.Add(1)
	}
	for err != nil && ctx.Err() == nil {
		current, looked := maps.Get(ctx, name, metav1.GetOptions{})
		switch {
		case looked != nil && !apierrors.IsNotFound(looked):
			time.Sleep(5 * time.Millisecond) // the server is not back yet
		case looked == nil && current.Data["step"] == step:
			obj, err = current, nil
		case looked != nil && step == "2 deleted":
			obj, err = nil, nil
		default:
			obj, err = try()
			if apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
				t.Errorf("%s to %s: %v", name, step, err)
				return nil
			}
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	v := version{step: step}
	if obj != nil {
		v.revision = obj.ResourceVersion
	}
	l.mu.Lock()
	l.last[name] = v
	l.mu.Unlock()
	l.done.Add(1)
	return obj
}

// seen returns an event as text.
func seen(kind watch.EventType, cm *corev1.ConfigMap) string {
	if kind == watch.Deleted {
		return cm.Data["step"] + " deleted"
	}
	return cm.Data["step"]
}

func revision(t *testing.T, cm *corev1.ConfigMap) int64 {
	n, err := strconv.ParseInt(cm.ResourceVersion, 10, 64)
	if err != nil {
		t.Errorf("%s has resourceVersion %q", cm.Name, cm.ResourceVersion)
	}
	return n
}

// handlerLog records the events of an informer's handler.
type handlerLog struct {
	informer cache.SharedIndexInformer
	lists    atomic.Int64 // the number of lists

	mu   sync.Mutex
	last map[string]version
	at   map[string]int64
	n    int
}

func follow(t *testing.T, server *skifftest.Server) *handlerLog {
	f := &handlerLog{last: map[string]version{}, at: map[string]int64{}}
	config := server.Config()
	config.Dial = (&net.Dialer{}).DialContext // a connection of its own
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && resp.StatusCode == http.StatusOK && (!r.URL.Query().Has("watch") || r.URL.Query().Has("sendInitialEvents")) {
				f.lists.Add(1)
			}
			return resp, err
		})
	})
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithNamespace("default"))
	f.informer = factory.Core().V1().ConfigMaps().Informer()
	handle := func(kind watch.EventType, obj any) {
		if gone, unknown := obj.(cache.DeletedFinalStateUnknown); unknown {
			obj = gone.Obj
		}
		cm := obj.(*corev1.ConfigMap)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.n++
		// A deletion that was noticed by listing again comes with the last version known.
		if at := revision(t, cm); at < f.at[cm.Name] || at == f.at[cm.Name] && kind != watch.Deleted {
			t.Errorf("%s: %s at %d came after %v at %d", cm.Name, seen(kind, cm), at, f.last[cm.Name], f.at[cm.Name])
		} else {
			f.at[cm.Name] = at
		}
		f.last[cm.Name] = version{seen(kind, cm), cm.ResourceVersion}
	}
	if _, err := f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { handle(watch.Added, obj) },
		UpdateFunc: func(old, obj any) {
			if old.(*corev1.ConfigMap).ResourceVersion != obj.(*corev1.ConfigMap).ResourceVersion { // otherwise the object was only listed again
				handle(watch.Modified, obj)
			}
		},
		DeleteFunc: func(obj any) { handle(watch.Deleted, obj) },
	}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		t.Fatal(err)
	}
	return f
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// knows reports whether the informer's last event of an object is right.
func (f *handlerLog) knows(name string, v version) bool {
	told, ever := f.last[name]
	if v.step == "2 deleted" && f.lists.Load() > 1 {
		return !ever || strings.HasSuffix(told.step, "deleted") // the informer may have listed after the object was deleted
	}
	return told.step == v.step && (v.revision == "" || told.revision == v.revision)
}

func (f *handlerLog) check(t *testing.T, l *load) {
	t.Helper()
	var missing string
	defer func() {
		if missing != "" {
			t.Log(missing)
		}
	}()
	wait(t, "the informer has every object's last state", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for name, v := range l.last {
			if !f.knows(name, v) {
				missing = fmt.Sprintf("%s: the last event was %v, the last write %v; the informer is at %s", name, f.last[name], v, f.informer.LastSyncResourceVersion())
				return false
			}
		}
		missing = ""
		return true
	})
	list, err := l.client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, cm := range list.Items {
		want = append(want, cm.Name+" "+cm.ResourceVersion)
	}
	for _, obj := range f.informer.GetStore().List() {
		cm := obj.(*corev1.ConfigMap)
		got = append(got, cm.Name+" "+cm.ResourceVersion)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) || len(want) != objects/2 {
		t.Errorf("the informer holds %d objects, the server %d, expected %d; or other versions", len(got), len(want), objects/2)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lists.Load() == 1 && f.n != writes {
		t.Errorf("the informer never listed again, but was told of %d changes out of %d", f.n, writes)
	}
	t.Logf("the informer listed %d times and was told of %d changes", f.lists.Load(), f.n)
}

// resuming is a watch that is resumed after the last event when it breaks.
type resuming struct {
	maps typedcorev1.ConfigMapInterface

	mu     sync.Mutex
	steps  map[string][]string
	after  int64  // the revision of the last event
	last   string // the last event
	breaks int
}

func newResuming(t *testing.T, maps typedcorev1.ConfigMapInterface) *resuming {
	t.Helper()
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return &resuming{maps: maps, steps: map[string][]string{}, after: now}
}

func (r *resuming) run(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		options := metav1.ListOptions{AllowWatchBookmarks: true, ResourceVersion: strconv.FormatInt(r.after, 10)}
		w, err := r.maps.Watch(ctx, options)
		if err != nil {
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				t.Errorf("the server has forgotten what came after %s: %v", options.ResourceVersion, err)
				return
			}
			time.Sleep(5 * time.Millisecond) // the server is not back yet
			continue
		}
		for e := range w.ResultChan() {
			r.take(t, e)
		}
		w.Stop()
		r.breaks++
	}
}

func (r *resuming) take(t *testing.T, e watch.Event) {
	cm, ok := e.Object.(*corev1.ConfigMap)
	if !ok {
		return // the error event that ends the watch
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := revision(t, cm)
	if e.Type == watch.Bookmark {
		r.after = max(r.after, at)
		return
	}
	event := fmt.Sprintf("%s %s at %d in watch %d", cm.Name, seen(e.Type, cm), at, r.breaks)
	if at <= r.after {
		t.Errorf("%s came after %s, at %d", event, r.last, r.after)
	}
	r.after, r.last = at, event
	r.steps[cm.Name] = append(r.steps[cm.Name], seen(e.Type, cm))
}

func (r *resuming) check(t *testing.T, l *load) {
	t.Helper()
	total := func() (n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, steps := range r.steps {
			n += len(steps)
		}
		return n
	}
	wait(t, "the watch has seen every write", func() bool { return total() >= writes })
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, v := range l.last {
		want := []string{"1", "2"}
		if v.step == "2 deleted" {
			want = append(want, v.step)
		}
		if !slices.Equal(r.steps[name], want) {
			t.Errorf("%s: the watch saw %q, expected %q", name, r.steps[name], want)
		}
	}
	t.Logf("the watch was told of %d changes, having been broken %d times", writes, r.breaks)
}
