package registry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
	"skiff/internal/catalog"
	"skiff/internal/catalog/core"
	"skiff/internal/store"
	"skiff/internal/store/etcd"
	"skiff/internal/store/memory"
	"skiff/test/seed"
)

// TestUncached makes the same random writes to a registry of Events and to a twin of it that has them cached, and compares what both answer: gets,
// lists of all kinds with their pages, and watches from any revision with any selector.
func TestUncached(t *testing.T) {
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			g := &twins{t: t, random: rand.New(rand.NewPCG(seed.New(t), 0)), now: time.Unix(1_800_000_000, 0)}
			engine := func() store.Store { return memory.New(memory.Options{}) }
			if i == 0 {
				engine = func() store.Store { return openEtcd(t) }
			}
			g.uncached, g.cached = openEvents(t, engine(), true), openEvents(t, engine(), false)
			g.uncached.SetScan(1+g.random.Int64N(20), 1+g.random.Int64N(40), 1<<g.random.IntN(18), 1<<g.random.IntN(20))
			g.play()
		})
	}
}

func openEtcd(t *testing.T) store.Store {
	t.Helper()
	s, err := etcd.Embed(t.Context(), etcd.EmbedOptions{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// openEvents opens a registry of Events, which are cached or not.
func openEvents(t testing.TB, s store.Store, uncached bool) *rig {
	t.Helper()
	r := &rig{t: t, store: &faulty{Store: s}}
	declared := core.Event
	declared.Uncached = uncached
	info := declared.Info()
	const root = "/registry/"
	r.feed = cache.NewFeed(r.store, []cache.Kind{registry.Kind(info, registry.Options{Root: root})}, cache.Options{Log: slog.New(slog.DiscardHandler)})
	r.Registry = registry.New(info, registry.Options{Store: r.store, Feed: r.feed, Root: root, TTL: time.Hour})
	t.Cleanup(func() {
		r.store.resume()
		r.feed.Close()
		r.store.Close()
	})
	<-r.feed.Synced()
	return r
}

// twins are two registries that hold the same objects at the same revisions.
type twins struct {
	t                *testing.T
	random           *rand.Rand
	now              time.Time
	uncached, cached *rig
	compacted        int64
	watches          []*twinWatch
}

type twinWatch struct {
	about    string
	lazy     bool // reads only at the end, when the ring has forgotten what it needs
	selector [2]registry.Selector
	watch    [2]*registry.Watch
	told     [2][]string
}

func (g *twins) both() [2]*rig { return [2]*rig{g.uncached, g.cached} }

func (g *twins) play() {
	defer func() {
		for _, w := range g.watches {
			w.watch[0].Close()
			w.watch[1].Close()
		}
	}()
	for step := range 600 {
		switch n := g.random.IntN(100); {
		case n < 70:
			g.write(step)
		case n < 80:
			g.compareList()
		case n < 86:
			g.compareGet()
		case n < 90 && len(g.watches) < 24:
			g.openWatch()
		case n < 99:
			for _, w := range g.watches {
				if !w.lazy && g.random.IntN(2) == 0 {
					g.read(w, 0)
				}
			}
		default:
			g.compact()
		}
	}
	g.compareStats()
	final := g.uncached.revision()
	for _, w := range g.watches {
		g.read(w, final)
		if !slices.Equal(w.told[0], w.told[1]) {
			g.t.Errorf("watch %s\nuncached was told %s\n  cached was told %s", w.about, strings.Join(w.told[0], "\n\t"), strings.Join(w.told[1], "\n\t"))
		}
	}
}

func (g *twins) pick(of ...string) string { return of[g.random.IntN(len(of))] }

// write makes one write, the same to both.
func (g *twins) write(step int) {
	namespace, name := g.pick("x", "y", "yy"), fmt.Sprintf("e%02d", g.random.IntN(40))
	shape := func(e *corev1.Event) {
		e.Labels = map[string]string{"app": g.pick("a", "b"), "step": fmt.Sprint(step)}
		e.Reason, e.Type = g.pick("Pulled", "Started", ""), g.pick("Normal", "Warning")
		e.InvolvedObject = corev1.ObjectReference{Namespace: namespace, Name: g.pick("web", "db")}
		e.Source.Component = g.pick("kubelet", "")
		e.Count = int32(step)
		e.Annotations = map[string]string{"pad": strings.Repeat("p", g.pad())}
	}
	kind := g.random.IntN(10)
	var wanted corev1.Event
	shape(&wanted)
	var errs [2]string
	for i, r := range g.both() {
		w := registry.Write{Warn: func(string) {}, Request: catalog.Request{Now: g.now}}
		var err error
		switch {
		case kind < 5:
			obj := wanted.DeepCopy()
			obj.Namespace, obj.Name = namespace, name
			_, err = r.Create(g.t.Context(), obj, w)
		case kind < 8:
			_, _, err = r.Update(g.t.Context(), registry.Update{Namespace: namespace, Name: name, Unconditional: true, Write: w,
				Transform: func(_ context.Context, current catalog.Object) (catalog.Object, error) {
					obj := wanted.DeepCopy()
					obj.ObjectMeta = *current.(*corev1.Event).ObjectMeta.DeepCopy()
					obj.Labels, obj.Annotations, obj.ResourceVersion = wanted.Labels, wanted.Annotations, ""
					return obj, nil
				}})
		default:
			_, _, err = r.Delete(g.t.Context(), namespace, name, &metav1.DeleteOptions{}, w)
		}
		errs[i] = fmt.Sprint(err)
	}
	if errs[0] != errs[1] {
		g.t.Fatalf("step %d: uncached %s, cached %s", step, errs[0], errs[1])
	}
	if a, b := g.uncached.revision(), g.cached.revision(); a != b {
		g.t.Fatalf("step %d: revisions %d and %d", step, a, b)
	}
}

// pad is how much an Event carries beside what is compared: at times enough for lists that are not held in memory and for a ring that forgets.
func (g *twins) pad() int {
	if g.random.IntN(3) == 0 {
		return g.random.IntN(200_000)
	}
	return 0
}

func (g *twins) selection() (namespace, labels, fields string) {
	namespace = g.pick("", "", "x", "y")
	labels = g.pick("", "", "", "app=a", "app!=b", "app in (a,b),step")
	fields = g.pick("", "", "", "reason=Pulled", "reason!=Pulled", "type=Warning,involvedObject.name=web", "metadata.name=e07", "metadata.namespace=y", "source=", "reason=",
		"metadata.name=e07,metadata.name=e08")
	return namespace, labels, fields
}

func (g *twins) selectors(namespace, labels, fields string) (s [2]registry.Selector) {
	for i, r := range g.both() {
		var err error
		if s[i], err = r.NewSelector(r.Info, namespace, labels, fields); err != nil {
			g.t.Fatal(err)
		}
	}
	return s
}

// past is a revision that the store remembers.
func (g *twins) past() int64 {
	now := g.uncached.revision()
	low := max(g.compacted, 2)
	if low >= now {
		return now
	}
	return low + g.random.Int64N(now-low+1)
}

func (g *twins) compareList() {
	namespace, labels, fields := g.selection()
	selectors := g.selectors(namespace, labels, fields)
	l := registry.List{Limit: []int64{0, 0, 1, 7, 30, 500}[g.random.IntN(6)]}
	switch g.random.IntN(6) {
	case 0:
		l.ResourceVersion = "0"
	case 1:
		l.ResourceVersion, l.Match = fmt.Sprint(g.past()), metav1.ResourceVersionMatchExact
	case 2:
		l.ResourceVersion, l.Match = fmt.Sprint(g.past()), metav1.ResourceVersionMatchNotOlderThan
	case 3:
		l.ResourceVersion = fmt.Sprint(g.past())
	}
	about := fmt.Sprintf("list of %q %q %q, limit %d, version %q %s", namespace, labels, fields, l.Limit, l.ResourceVersion, l.Match)
	var got [2]listed
	for i, r := range g.both() {
		r.fresh() // "0" is whatever the cache has
		l.Selector = selectors[i]
		got[i] = g.listAll(r, l, about)
	}
	if got[0].revision != got[1].revision || !slices.Equal(got[0].items, got[1].items) {
		g.t.Fatalf("%s\nuncached has at %d %s\n  cached has at %d %s", about, got[0].revision, strings.Join(got[0].items, "\n\t"), got[1].revision, strings.Join(got[1].items, "\n\t"))
	}
	if l.ResourceVersion != "0" && fmt.Sprint(got[0].remaining) != fmt.Sprint(got[1].remaining) { // upstream's cache ignores limits then, and only the cache
		g.t.Fatalf("%s: uncached has %v left, cached %v", about, got[0].remaining, got[1].remaining)
	}
}

type listed struct {
	items     []string
	revision  int64
	remaining []int64 // after each page
}

// listAll reads all pages of a list.
func (g *twins) listAll(r *rig, l registry.List, about string) (out listed) {
	for {
		page, err := r.List(g.t.Context(), l)
		if err != nil {
			g.t.Fatalf("%s: %v", about, err)
		}
		if out.revision == 0 {
			out.revision = page.Revision
		} else if out.revision != page.Revision {
			g.t.Fatalf("%s: a page is at %d, those before are at %d", about, page.Revision, out.revision)
		}
		var items []string
		for range 2 { // which has to have the same result twice
			items = nil
			if err := page.Each(g.t.Context(), func(it *cache.Item) error {
				items = append(items, g.show(r, "", it))
				return nil
			}); err != nil {
				g.t.Fatalf("%s: %v", about, err)
			}
		}
		if l.Limit > 0 && int64(len(items)) > l.Limit && (l.ResourceVersion != "0" || r == g.uncached) {
			g.t.Fatalf("%s: a page of %d", about, len(items))
		}
		out.items = append(out.items, items...)
		if page.Remaining != nil {
			out.remaining = append(out.remaining, *page.Remaining)
		}
		if page.Continue == "" {
			return out
		}
		l.Continue, l.ResourceVersion, l.Match = page.Continue, "", ""
	}
}

// show tells what there is to an object, but for its uid.
func (g *twins) show(r *rig, kind cache.ChangeType, it *cache.Item) string {
	obj, err := r.Decode(it)
	if err != nil {
		g.t.Fatal(err)
	}
	e := obj.(*corev1.Event)
	if e.ResourceVersion != fmt.Sprint(it.Revision) || it.Key != e.Namespace+"/"+e.Name || it.Name != e.Name || it.Namespace != e.Namespace {
		g.t.Fatalf("an item %s at %d is %s/%s at %s", it.Key, it.Revision, e.Namespace, e.Name, e.ResourceVersion)
	}
	return fmt.Sprintf("%s %s@%d %v %s %s %s %q %d %d", kind, it.Key, it.Revision, e.Labels, e.Reason, e.Type, e.InvolvedObject.Name, e.Source.Component, e.Count, len(e.Annotations["pad"]))
}

func (g *twins) compareGet() {
	namespace, name := g.pick("x", "y", "yy"), fmt.Sprintf("e%02d", g.random.IntN(40))
	version := g.pick("", "", "0", fmt.Sprint(g.past()))
	var got [2]string
	for i, r := range g.both() {
		r.fresh()
		it, err := r.Get(g.t.Context(), namespace, name, version)
		if err != nil {
			got[i] = err.Error()
		} else {
			got[i] = g.show(r, "", it)
		}
	}
	if got[0] != got[1] {
		g.t.Fatalf("get %s/%s at %q\nuncached %s\n  cached %s", namespace, name, version, got[0], got[1])
	}
}

func (g *twins) openWatch() {
	namespace, labels, fields := g.selection()
	w := &twinWatch{selector: g.selectors(namespace, labels, fields), lazy: g.random.IntN(3) == 0}
	after := int64(0)
	if g.random.IntN(2) == 0 {
		after = g.past()
	}
	w.about = fmt.Sprintf("of %q %q %q after %d", namespace, labels, fields, after)
	for i, r := range g.both() {
		var err error
		if after != 0 {
			w.watch[i], err = r.Watch(g.t.Context(), w.selector[i], after)
		} else {
			r.fresh()
			var page registry.Page
			if page, w.watch[i], err = r.WatchFromNow(g.t.Context(), w.selector[i], true); err == nil {
				w.told[i] = append(w.told[i], fmt.Sprint("at ", page.Revision))
				err = page.Each(g.t.Context(), func(it *cache.Item) error {
					w.told[i] = append(w.told[i], g.show(r, cache.Added, it))
					return nil
				})
			}
		}
		if err != nil {
			g.t.Fatalf("%s: %v", w.about, err)
		}
		w.watch[i].Patient = g.random.IntN(2) == 0
	}
	g.watches = append(g.watches, w)
}

// read takes what has happened, at least up to a revision.
func (g *twins) read(w *twinWatch, upTo int64) {
	for i, r := range g.both() {
		for deadline := time.Now().Add(30 * time.Second); ; {
			ctx, cancel := context.WithTimeout(g.t.Context(), 2*time.Millisecond)
			changes, err := w.watch[i].Next(ctx, nil)
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				g.t.Fatalf("%s: twin %d: %v", w.about, i, err)
			}
			for _, c := range changes {
				if kind, it := w.selector[i].Event(c); it != nil {
					w.told[i] = append(w.told[i], g.show(r, kind, it))
				}
			}
			if len(changes) == 0 && w.watch[i].Seen() >= upTo {
				break
			}
			if time.Now().After(deadline) {
				g.t.Fatalf("%s: twin %d has come to %d of %d", w.about, i, w.watch[i].Seen(), upTo)
			}
		}
	}
}

// compact forgets what all who watch have seen, and checks that a list from before it is refused.
func (g *twins) compact() {
	to := g.uncached.revision() - 100
	for _, w := range g.watches {
		to = min(to, w.watch[0].Seen(), w.watch[1].Seen())
	}
	if to <= g.compacted || to < 2 {
		return
	}
	for _, r := range g.both() {
		if err := r.store.Compact(g.t.Context(), to); err != nil {
			g.t.Fatal(err)
		}
	}
	g.compacted = to
	old := registry.List{ResourceVersion: fmt.Sprint(to - 1), Match: metav1.ResourceVersionMatchExact}
	if _, err := g.uncached.List(g.t.Context(), old); !apierrors.IsResourceExpired(err) {
		g.t.Fatalf("a list at %d after compaction at %d: %v", to-1, to, err)
	}
}

func (g *twins) compareStats() {
	for _, r := range g.both() {
		r.fresh()
	}
	a, b := g.uncached.Cache.Stats(), g.cached.Cache.Stats()
	if a.Objects != b.Objects || g.uncached.Cache.Len() != g.cached.Cache.Len() {
		g.t.Errorf("uncached counts %d objects, cached %d", a.Objects, b.Objects)
	}
	if g.uncached.Cache.Get("x/e01") != nil || g.uncached.Cache.Snapshot().Len() > 0 {
		g.t.Error("objects are kept")
	}
}
