package garbagecollector_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/garbagecollector"
	"skiff/test/seed"
)

// modelObject is an object in the simple model of what the collector should do.
type modelObject struct {
	kind, name string
	uid        types.UID
	owners     map[types.UID]bool // by owner: whether the reference blocks its deletion
}

// model holds all objects.
type model map[types.UID]*modelObject

// remove deletes an object. In the background and in the foreground all objects that lose their last owner are deleted too, in the end; orphans stay.
func (m model) remove(uid types.UID, how metav1.DeletionPropagation) {
	delete(m, uid)
	for changed := how != metav1.DeletePropagationOrphan; changed; {
		changed = false
		for _, t := range m {
			if len(t.owners) > 0 && !slices.ContainsFunc(slices.Collect(maps.Keys(t.owners)), func(owner types.UID) bool { return m[owner] != nil }) {
				delete(m, t.uid)
				changed = true
			}
		}
	}
	for _, t := range m {
		maps.DeleteFunc(t.owners, func(owner types.UID, _ bool) bool { return m[owner] == nil })
	}
}

func (m model) String() string {
	var lines []string
	for _, t := range m {
		var owners []string
		for owner := range t.owners {
			owners = append(owners, m[owner].name)
		}
		slices.Sort(owners)
		lines = append(lines, fmt.Sprintf("%s/%s of %v", t.kind, t.name, owners))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

var things = map[string]schema.GroupVersionResource{
	"ConfigMap":      {Version: "v1", Resource: "configmaps"},
	"Secret":         {Version: "v1", Resource: "secrets"},
	"ServiceAccount": {Version: "v1", Resource: "serviceaccounts"},
}

// env holds the objects on a server, and the model of them.
type env struct {
	t      testing.TB
	api    dynamic.Interface
	random *rand.Rand
	model  model
	made   int
}

func (w *env) of(kind string) dynamic.ResourceInterface {
	return w.api.Resource(things[kind]).Namespace("default")
}

// pick returns a random object, or none if there are none.
func (w *env) pick() *modelObject {
	uids := slices.Sorted(maps.Keys(w.model))
	if len(uids) == 0 {
		return nil
	}
	return w.model[uids[w.random.IntN(len(uids))]]
}

func (w *env) refs(owners map[types.UID]bool) []any {
	var out []any
	for _, uid := range slices.Sorted(maps.Keys(owners)) {
		owner := w.model[uid]
		out = append(out, map[string]any{"apiVersion": "v1", "kind": owner.kind, "name": owner.name, "uid": string(uid), "blockOwnerDeletion": owners[uid]})
	}
	return out
}

// create creates an object with up to two owners.
func (w *env) create() {
	kind := slices.Sorted(maps.Keys(things))[w.random.IntN(len(things))]
	w.made++
	t := &modelObject{kind: kind, name: fmt.Sprintf("t%03d", w.made), owners: map[types.UID]bool{}}
	for range w.random.IntN(3) {
		if owner := w.pick(); owner != nil {
			t.owners[owner.uid] = w.random.IntN(3) > 0
		}
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": t.name}}}
	if refs := w.refs(t.owners); refs != nil {
		obj.Object["metadata"].(map[string]any)["ownerReferences"] = refs
	}
	made, err := w.of(kind).Create(w.t.Context(), obj, metav1.CreateOptions{})
	check(w.t, err)
	t.uid = made.GetUID()
	w.model[t.uid] = t
}

// own gives an object another owner: this makes cycles.
func (w *env) own() {
	t, owner := w.pick(), w.pick()
	if t == nil || t == owner {
		return
	}
	t.owners[owner.uid] = w.random.IntN(3) > 0
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": w.refs(t.owners)}})
	check(w.t, err)
	_, err = w.of(t.kind).Patch(w.t.Context(), t.name, types.MergePatchType, data, metav1.PatchOptions{})
	check(w.t, err)
}

func (w *env) remove() {
	t := w.pick()
	if t == nil {
		return
	}
	how := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}[w.random.IntN(3)]
	check(w.t, w.of(t.kind).Delete(w.t.Context(), t.name, metav1.DeleteOptions{PropagationPolicy: &how}))
	w.model.remove(t.uid, how)
}

// becomes waits until the server has what the model has.
func (w *env) becomes() {
	w.t.Helper()
	want := w.model.String()
	controllertest.Eventually(w.t, func() string {
		is := model{}
		for kind := range things {
			list, err := w.of(kind).List(w.t.Context(), metav1.ListOptions{})
			check(w.t, err)
			for _, item := range list.Items {
				owners := map[types.UID]bool{}
				for _, ref := range item.GetOwnerReferences() {
					owners[ref.UID] = *ref.BlockOwnerDeletion
				}
				is[item.GetUID()] = &modelObject{kind: kind, name: item.GetName(), uid: item.GetUID(), owners: owners}
			}
		}
		for _, t := range is {
			for owner := range t.owners {
				if is[owner] == nil {
					return t.name + " to forget an owner that is gone, or to go"
				}
			}
		}
		if got := is.String(); got != want {
			return fmt.Sprintf("got:\n%s\nwant:\n%s", got, want)
		}
		return ""
	})
}

// Objects own each other at random, also in cycles, and are deleted with all policies, while another client changes them and the collector is stopped and
// started at random moments: what is left is always what a simple model says, and owners deleted in the foreground go after what blocks them.
func TestAnyGraph(t *testing.T) {
	seed := seed.New(t)
	server := apitest.Start(t)
	api, err := dynamic.NewForConfig(server.Config())
	check(t, err)
	w := &env{t: t, api: api, random: rand.New(rand.NewPCG(seed, 0)), model: model{}}
	log := record(t, w)
	for range 30 {
		w.create()
	}
	for range 8 {
		w.own()
	}
	stop := controllertest.Run(t, server, garbagecollector.New)
	for range 25 {
		busy, cancel := context.WithCancel(t.Context())
		var others sync.WaitGroup
		target := w.pick()
		if target != nil {
			others.Go(func() { w.disturb(busy, target) })
		}
		w.remove()
		if w.random.IntN(2) == 0 {
			time.Sleep(time.Duration(w.random.IntN(3000)) * time.Microsecond) // not a wait: a moment
			stop()
			stop = controllertest.Run(t, server, garbagecollector.New)
		}
		w.becomes()
		cancel()
		others.Wait()
		w.create()
		w.create()
		if w.random.IntN(3) == 0 {
			w.own()
		}
	}
	w.becomes()
	log.check(t)
}

// disturb changes an object all the time.
func (w *env) disturb(ctx context.Context, t *modelObject) {
	for i := 0; ctx.Err() == nil; i++ {
		if _, err := w.of(t.kind).Patch(ctx, t.name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, i), metav1.PatchOptions{}); apierrors.IsNotFound(err) {
			return
		}
	}
}

// history holds all changes of objects.
type history struct {
	mu     sync.Mutex
	events []watch.Event
}

func record(t testing.TB, w *env) *history {
	h := &history{}
	for kind := range things {
		stream, err := w.of(kind).Watch(t.Context(), metav1.ListOptions{})
		check(t, err)
		go func() {
			for e := range stream.ResultChan() {
				h.mu.Lock()
				h.events = append(h.events, e)
				h.mu.Unlock()
			}
		}()
		t.Cleanup(stream.Stop)
	}
	return h
}

// check goes through the history: when an owner that was deleted in the foreground was gone, nothing was left that blocked it, except for what in turn
// waited for it. All in such a cycle may go at the same time.
func (h *history) check(t testing.TB) {
	h.mu.Lock()
	defer h.mu.Unlock()
	version := func(e watch.Event) int {
		n, _ := strconv.Atoi(e.Object.(*unstructured.Unstructured).GetResourceVersion())
		return n
	}
	slices.SortFunc(h.events, func(a, b watch.Event) int { return cmp.Compare(version(a), version(b)) })
	there, ever := map[types.UID]*unstructured.Unstructured{}, map[types.UID]*unstructured.Unstructured{}
	ended := 0
	for _, e := range h.events {
		obj := e.Object.(*unstructured.Unstructured)
		before := there[obj.GetUID()]
		there[obj.GetUID()], ever[obj.GetUID()] = obj, obj
		if e.Type != watch.Deleted {
			continue
		}
		delete(there, obj.GetUID())
		if before == nil || before.GetDeletionTimestamp() == nil || !slices.Contains(before.GetFinalizers(), metav1.FinalizerDeleteDependents) {
			continue
		}
		ended++
		for _, dependent := range there {
			for _, ref := range dependent.GetOwnerReferences() {
				if ref.UID == obj.GetUID() && *ref.BlockOwnerDeletion && !owns(ever, dependent.GetUID(), obj, map[types.UID]bool{}) {
					t.Errorf("%s went in the foreground although %s was there", obj.GetName(), dependent.GetName())
				}
			}
		}
	}
	t.Logf("%d changes; %d ended in the foreground", len(h.events), ended)
	if len(h.events) == 0 || ended == 0 {
		t.Error("nothing happened")
	}
}

// owns reports whether an object is owned by another, directly or not.
func owns(ever map[types.UID]*unstructured.Unstructured, owner types.UID, obj *unstructured.Unstructured, seen map[types.UID]bool) bool {
	for _, ref := range obj.GetOwnerReferences() {
		if ref.UID == owner {
			return true
		}
		if next := ever[ref.UID]; next != nil && !seen[ref.UID] {
			seen[ref.UID] = true
			if owns(ever, owner, next, seen) {
				return true
			}
		}
	}
	return false
}
