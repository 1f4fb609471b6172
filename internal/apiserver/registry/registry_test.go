package registry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
	"skiff/internal/catalog"
	"skiff/internal/catalog/all"
	"skiff/internal/store"
	"skiff/internal/store/memory"
)

// rig is the registry of one resource over a store that can be made to lag and to fail.
type rig struct {
	*registry.Registry
	t     testing.TB
	store *faulty
	feed  *cache.Feed
}

func open(t testing.TB, group, plural string) *rig {
	t.Helper()
	r := &rig{t: t, store: &faulty{Store: memory.New(memory.Options{})}}
	var info *catalog.Info
	for _, i := range all.Resources() {
		if i.GVR.Group == group && i.GVR.Resource == plural && i.Stored == i {
			info = i
		}
	}
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

// faulty is a store whose watches can be held back, so that the cache lags behind, and whose writes can fail.
type faulty struct {
	store.Store
	mu   sync.Mutex
	held chan struct{} // closed to let the watches go on; nil if they are not held
	fail error         // what the next write that is made answers
	puts []store.PutOptions
	// before is called once, before a key is deleted.
	before func(key string)
}

func (f *faulty) Delete(ctx context.Context, key string, ifRevision int64) (int64, error) {
	if before := f.before; before != nil {
		f.before = nil
		before(key)
	}
	revision, err := f.Store.Delete(ctx, key, ifRevision)
	if err == nil {
		err = f.failure()
	}
	return revision, err
}

func (f *faulty) hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = make(chan struct{})
}

func (f *faulty) resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held != nil {
		close(f.held)
		f.held = nil
	}
}

func (f *faulty) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.fail
	f.fail = nil
	return err
}

func (f *faulty) Put(ctx context.Context, key string, value []byte, opts store.PutOptions) (int64, error) {
	f.mu.Lock()
	f.puts = append(f.puts, opts)
	f.mu.Unlock()
	revision, err := f.Store.Put(ctx, key, value, opts)
	if err == nil {
		err = f.failure()
	}
	return revision, err
}

func (f *faulty) Watch(ctx context.Context, prefix string, after int64) store.Watch {
	w := &heldWatch{Watch: f.Store.Watch(ctx, prefix, after), out: make(chan store.Batch)}
	go func() {
		defer close(w.out)
		for batch := range w.Watch.Batches() {
			f.mu.Lock()
			held := f.held
			f.mu.Unlock()
			if held != nil {
				select {
				case <-held:
				case <-ctx.Done():
					return
				}
			}
			select {
			case w.out <- batch:
			case <-ctx.Done():
				return
			}
		}
	}()
	return w
}

type heldWatch struct {
	store.Watch
	out chan store.Batch
}

func (w *heldWatch) Batches() <-chan store.Batch { return w.out }

func write() registry.Write {
	return registry.Write{Warn: func(string) {}, Request: catalog.Request{Now: time.Now()}}
}

func dry() registry.Write {
	w := write()
	w.DryRun = true
	return w
}

func cm(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"k": value}}
}

func (r *rig) create(name, value string) *cache.Item {
	r.t.Helper()
	it, err := r.Create(context.Background(), cm(name, value), write())
	if err != nil {
		r.t.Fatal(err)
	}
	return it
}

// set is an update that sets the value, from a client that has the given version ("" if it has none).
func set(name, value, version string, w registry.Write) registry.Update {
	return registry.Update{Namespace: "default", Name: name, Unconditional: true, Write: w,
		Transform: func(_ context.Context, current catalog.Object) (catalog.Object, error) {
			obj := current.(*corev1.ConfigMap)
			obj.Data, obj.ResourceVersion = map[string]string{"k": value}, version
			return obj, nil
		}}
}

func (r *rig) value(it *cache.Item) string {
	r.t.Helper()
	obj, err := r.Decode(it)
	if err != nil {
		r.t.Fatal(err)
	}
	return obj.(*corev1.ConfigMap).Data["k"]
}

func (r *rig) fresh() {
	r.t.Helper()
	if err := r.feed.Fresh(context.Background()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) revision() int64 {
	r.t.Helper()
	revision, err := r.store.Revision(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return revision
}

// stale makes an object that the cache has in an old version, and returns both versions.
func (r *rig) stale() (old, current *cache.Item) {
	r.t.Helper()
	old = r.create("a", "old")
	r.fresh()
	r.store.hold()
	current, _, err := r.Update(context.Background(), set("a", "new", "", write()))
	if err != nil {
		r.t.Fatal(err)
	}
	if it := r.Cache.Get("default/a"); it == nil || it.Revision != old.Revision {
		r.t.Fatalf("the cache does not lag behind: %+v", it)
	}
	return old, current
}

func version(it *cache.Item) string { return fmt.Sprint(it.Revision) }

// What is decided on the cache is never wrong because the cache lags behind.
func TestLaggingCache(t *testing.T) {
	ctx := context.Background()
	uid := func(s types.UID) *types.UID { return &s }
	for name, test := range map[string]func(r *rig, old, current *cache.Item) error{
		"an update from the newest version": func(r *rig, _, current *cache.Item) error {
			it, _, err := r.Update(ctx, set("a", "newer", version(current), write()))
			if err == nil && r.value(it) != "newer" {
				return fmt.Errorf("is %s", r.value(it))
			}
			return err
		},
		"an update from the old version": func(r *rig, old, _ *cache.Item) error {
			if _, _, err := r.Update(ctx, set("a", "newer", version(old), write())); !apierrors.IsConflict(err) {
				return fmt.Errorf("answered %v", err)
			}
			return nil
		},
		"a dry run from the newest version": func(r *rig, _, current *cache.Item) error {
			it, _, err := r.Update(ctx, set("a", "dry", version(current), dry()))
			if err == nil && it.Revision != current.Revision {
				return fmt.Errorf("is at %d", it.Revision)
			}
			return err
		},
		"a dry run from the old version": func(r *rig, old, _ *cache.Item) error {
			if _, _, err := r.Update(ctx, set("a", "dry", version(old), dry())); !apierrors.IsConflict(err) {
				return fmt.Errorf("answered %v", err)
			}
			return nil
		},
		"an update to what the cache holds": func(r *rig, _, current *cache.Item) error {
			it, _, err := r.Update(ctx, set("a", "old", "", write()))
			if err == nil && it.Revision <= current.Revision {
				return errors.New("nothing was written")
			}
			return err
		},
		"an update to what there is": func(r *rig, _, current *cache.Item) error {
			it, _, err := r.Update(ctx, set("a", "new", "", write()))
			if err == nil && it.Revision != current.Revision {
				return fmt.Errorf("was written again at %d", it.Revision)
			}
			return err
		},
		"a deletion of the newest version": func(r *rig, _, current *cache.Item) error {
			v := version(current)
			_, gone, err := r.Delete(ctx, "default", "a", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &v}}, write())
			if err == nil && !gone {
				return errors.New("is still there")
			}
			return err
		},
		"a deletion of the old version": func(r *rig, old, _ *cache.Item) error {
			v := version(old)
			if _, _, err := r.Delete(ctx, "default", "a", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &v}}, write()); !apierrors.IsConflict(err) {
				return fmt.Errorf("answered %v", err)
			}
			return nil
		},
		"a dry deletion of the old version": func(r *rig, old, _ *cache.Item) error {
			v := version(old)
			if _, _, err := r.Delete(ctx, "default", "a", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &v}}, dry()); !apierrors.IsConflict(err) {
				return fmt.Errorf("answered %v", err)
			}
			return nil
		},
		"a deletion of what was deleted and made anew": func(r *rig, old, _ *cache.Item) error {
			if _, _, err := r.Delete(ctx, "default", "a", &metav1.DeleteOptions{}, write()); err != nil {
				return err
			}
			again := r.create("a", "again")
			if _, _, err := r.Delete(ctx, "default", "a", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: uid(types.UID(old.UID))}}, write()); !apierrors.IsConflict(err) {
				return fmt.Errorf("answered %v", err)
			}
			_, _, err := r.Delete(ctx, "default", "a", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: uid(types.UID(again.UID))}}, write())
			return err
		},
		"an update of what was deleted": func(r *rig, _, _ *cache.Item) error {
			if _, _, err := r.Delete(ctx, "default", "a", &metav1.DeleteOptions{}, write()); err != nil {
				return err
			}
			if _, _, err := r.Update(ctx, set("a", "x", "", write())); !apierrors.IsNotFound(err) {
				return fmt.Errorf("answered %v", err)
			}
			return nil
		},
		"a deletion of what was deleted": func(r *rig, _, _ *cache.Item) error {
			if _, _, err := r.Delete(ctx, "default", "a", &metav1.DeleteOptions{}, write()); err != nil {
				return err
			}
			if _, _, err := r.Delete(ctx, "default", "a", &metav1.DeleteOptions{}, write()); !apierrors.IsNotFound(err) {
				return fmt.Errorf("answered %v", err)
			}
			return nil
		},
		"a change of what the cache has not seen yet": func(r *rig, _, _ *cache.Item) error {
			r.create("unseen", "1")
			if _, _, err := r.Update(ctx, set("unseen", "2", "", write())); err != nil {
				return err
			}
			_, _, err := r.Delete(ctx, "default", "unseen", &metav1.DeleteOptions{}, write())
			return err
		},
		"a create of what exists": func(r *rig, _, _ *cache.Item) error {
			r.create("unseen", "1")
			if _, err := r.Create(ctx, cm("unseen", "2"), write()); !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("answered %v", err)
			}
			if _, err := r.Create(ctx, cm("unseen", "2"), dry()); !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("answered %v to a dry run", err)
			}
			return nil
		},
		"a read of any state": func(r *rig, old, _ *cache.Item) error {
			it, err := r.Get(ctx, "default", "a", "0")
			if err == nil && it.Revision != old.Revision {
				return fmt.Errorf("waited for %d", it.Revision)
			}
			return err
		},
		"a read of the newest state": func(r *rig, _, current *cache.Item) error {
			go func() {
				time.Sleep(10 * time.Millisecond) // a read that does not wait comes too early
				r.store.resume()
			}()
			it, err := r.Get(ctx, "default", "a", "")
			if err == nil && it.Revision != current.Revision {
				return fmt.Errorf("got %d", it.Revision)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t, "", "configmaps")
			old, current := r.stale()
			if err := test(r, old, current); err != nil {
				t.Error(err)
			}
		})
	}
}

// A write whose outcome is unknown is reported as such and never made twice.
func TestUnknownOutcome(t *testing.T) {
	for _, c := range []struct {
		failure error
		code    int32
	}{
		{errors.New("the connection was lost"), http.StatusGatewayTimeout},
		{context.DeadlineExceeded, http.StatusGatewayTimeout},
		{store.ErrUnavailable, http.StatusServiceUnavailable},
		{store.ErrClosed, http.StatusServiceUnavailable},
		{store.ErrFull, http.StatusInsufficientStorage},
		{store.ErrTooLarge, http.StatusRequestEntityTooLarge},
	} {
		r := open(t, "", "configmaps")
		fail := func() { r.store.fail = fmt.Errorf("put: %w", c.failure) }
		fail()
		_, err := r.Create(t.Context(), cm("a", "1"), write())
		check := func(what string, err error, puts int) {
			t.Helper()
			var status apierrors.APIStatus
			if !errors.As(err, &status) || status.Status().Code != c.code {
				t.Errorf("%s that fails with %q: %v, want %d", what, c.failure, err, c.code)
			}
			if len(r.store.puts) != puts {
				t.Errorf("%s that fails with %q was tried %d times", what, c.failure, len(r.store.puts))
			}
		}
		check("a create", err, 1)
		fail()
		_, _, err = r.Update(t.Context(), set("a", "2", "", write()))
		check("an update", err, 2)
		fail()
		_, _, err = r.Delete(t.Context(), "default", "a", &metav1.DeleteOptions{}, write())
		check("a delete", err, 2)
	}
}

// What expires does so an hour after its last write, not its first.
func TestEventsExpire(t *testing.T) {
	r := open(t, "", "events")
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"}, Type: "Normal"}
	if _, err := r.Create(t.Context(), event, write()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Update(t.Context(), registry.Update{Namespace: "default", Name: "e", Unconditional: true, Write: write(),
		Transform: func(_ context.Context, current catalog.Object) (catalog.Object, error) {
			current.(*corev1.Event).Count++
			return current, nil
		}}); err != nil {
		t.Fatal(err)
	}
	for i, put := range r.store.puts {
		if put.TTL != time.Hour {
			t.Errorf("write %d lets the event live %v", i, put.TTL)
		}
	}
	permanent := open(t, "", "configmaps")
	permanent.create("a", "1")
	if permanent.store.puts[0].TTL != 0 {
		t.Error("a config map expires")
	}
}

func TestGenerateName(t *testing.T) {
	r := open(t, "", "configmaps")
	seen := map[string]bool{}
	for range 50 {
		obj := cm("", "x")
		obj.GenerateName = "web-"
		it, err := r.Create(t.Context(), obj, write())
		if err != nil || len(it.Name) != len("web-")+5 || seen[it.Name] {
			t.Fatalf("%v %v", it, err)
		}
		seen[it.Name] = true
	}
	long := registry.GenerateName(fmt.Sprintf("%0100d", 7))
	if len(long) != 63 {
		t.Errorf("%d characters", len(long))
	}
}

// Many who change one object at once all get their turn.
func TestConcurrentUpdates(t *testing.T) {
	r := open(t, "", "configmaps")
	r.create("a", "0")
	const writers, each = 8, 25
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				_, _, err := r.Update(context.Background(), registry.Update{Namespace: "default", Name: "a", Unconditional: true, Write: write(),
					Transform: func(_ context.Context, current catalog.Object) (catalog.Object, error) {
						obj := current.(*corev1.ConfigMap)
						var n int
						if _, err := fmt.Sscan(obj.Data["k"], &n); err != nil {
							return nil, err
						}
						obj.Data["k"] = fmt.Sprint(n + 1)
						return obj, nil
					}})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	it, err := r.Get(t.Context(), "default", "a", "")
	if err != nil || r.value(it) != fmt.Sprint(writers*each) {
		t.Errorf("%s, %v", r.value(it), err)
	}
}

// Of several who delete one object, one does.
func TestConcurrentDeletes(t *testing.T) {
	r := open(t, "", "configmaps")
	for range 20 {
		r.create("a", "0")
		var mu sync.Mutex
		var wg sync.WaitGroup
		done := 0
		for range 8 {
			wg.Go(func() {
				_, gone, err := r.Delete(context.Background(), "default", "a", &metav1.DeleteOptions{}, write())
				switch {
				case err == nil && gone:
					mu.Lock()
					done++
					mu.Unlock()
				case !apierrors.IsNotFound(err):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if done != 1 {
			t.Errorf("deleted %d times", done)
		}
	}
}

// A request that has marked an object deletes no other object of that name, even if the marked one was removed by another meanwhile.
func TestDeleteAfterTheMarkLeavesANamesake(t *testing.T) {
	r := open(t, "", "pods")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Spec: corev1.PodSpec{NodeName: "n", RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSDefault,
		TerminationGracePeriodSeconds: new(int64(30)), Containers: []corev1.Container{{Name: "c", Image: "i", ImagePullPolicy: corev1.PullAlways, TerminationMessagePolicy: corev1.TerminationMessageReadFile}}}}
	made, err := r.Create(context.Background(), pod.DeepCopy(), write())
	if err != nil {
		t.Fatal(err)
	}
	r.fresh()
	// The first removal meets a changed pod; by the second look the pod is gone and a namesake is there.
	var namesake *cache.Item
	r.store.before = func(key string) {
		kv, _, err := r.store.Store.Get(context.Background(), key)
		if err == nil {
			_, err = r.store.Store.Put(context.Background(), key, kv.Value, store.PutOptions{IfRevision: kv.Revision})
		}
		if err != nil {
			t.Error(err)
		}
		r.store.before = func(key string) {
			if _, err := r.store.Store.Delete(context.Background(), key, store.AnyRevision); err != nil {
				t.Error(err)
			}
			if namesake, err = r.Create(context.Background(), pod.DeepCopy(), write()); err != nil {
				t.Error(err)
			}
		}
	}
	it, gone, err := r.Delete(context.Background(), "default", "a", &metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, write())
	if err != nil || !gone || it.UID != made.UID {
		t.Errorf("deleting: %v, %v, %v", it, gone, err)
	}
	if now, err := r.Get(context.Background(), "default", "a", ""); err != nil || now.UID != namesake.UID {
		t.Errorf("the namesake: %v, %v", now, err)
	}
}

// Who deletes a pod at once marks it first; when the kubelet that sees the mark is quicker to remove it, the pod is deleted all the same.
func TestDeletedByWhoeverSawTheMark(t *testing.T) {
	r := open(t, "", "pods")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Spec: corev1.PodSpec{NodeName: "n", RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSDefault,
		TerminationGracePeriodSeconds: new(int64(30)), Containers: []corev1.Container{{Name: "c", Image: "i", ImagePullPolicy: corev1.PullAlways, TerminationMessagePolicy: corev1.TerminationMessageReadFile}}}}
	for range 3 {
		made, err := r.Create(context.Background(), pod.DeepCopy(), write())
		if err != nil {
			t.Fatal(err)
		}
		r.fresh()
		r.store.before = func(key string) {
			if _, err := r.store.Store.Delete(context.Background(), key, store.AnyRevision); err != nil {
				t.Error(err)
			}
		}
		it, gone, err := r.Delete(context.Background(), "default", "a", &metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, write())
		if err != nil || !gone || it.UID != made.UID {
			t.Errorf("deleting: %v, %v, %v", it, gone, err)
		}
	}
}

// Writes that change nothing write nothing; those that fail neither.
func TestNothingToWrite(t *testing.T) {
	r := open(t, "", "configmaps")
	r.create("a", "1")
	before := r.revision()
	for _, u := range []registry.Update{set("a", "1", "", write()), set("a", "2", "", dry()), set("a", "2", "1", write())} {
		_, _, _ = r.Update(t.Context(), u)
	}
	if _, err := r.Create(t.Context(), cm("b", "1"), dry()); err != nil {
		t.Error(err)
	}
	if _, gone, err := r.Delete(t.Context(), "default", "a", &metav1.DeleteOptions{}, dry()); err != nil || !gone {
		t.Error(gone, err)
	}
	refuse := write()
	refuse.Validate = func(context.Context, catalog.Object, catalog.Object) error {
		return apierrors.NewForbidden(r.Resource(), "a", nil)
	}
	if _, err := r.Create(t.Context(), cm("b", "1"), refuse); !apierrors.IsForbidden(err) {
		t.Error(err)
	}
	if _, _, err := r.Update(t.Context(), set("a", "2", "", refuse)); !apierrors.IsForbidden(err) {
		t.Error(err)
	}
	if _, _, err := r.Delete(t.Context(), "default", "a", &metav1.DeleteOptions{}, refuse); !apierrors.IsForbidden(err) {
		t.Error(err)
	}
	if now := r.revision(); now != before {
		t.Errorf("%d writes", now-before)
	}
}
