//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// writeRecord is a write that has happened, as a watcher observes it.
type writeRecord struct {
	kind    string // ADDED, MODIFIED, DELETED
	value   string // the object's before a deletion
	version string // of the object; "" for a deletion, whose version a writer is not told
}

// writer creates, updates and deletes objects that only it writes, so that it always knows their state.
type writer struct {
	t      *testing.T
	maps   typedcorev1.ConfigMapInterface
	random *rand.Rand
	names  []string
	now    map[string]*corev1.ConfigMap // what is there
	deeds  map[string][]writeRecord     // of each object, in order
	done   *atomic.Int64                // acknowledged writes of all writers
	unsure *atomic.Int64                // writes whose answer was lost
	serial int
}

func newWriter(t *testing.T, number int, maps typedcorev1.ConfigMapInterface, random *rand.Rand, done, unsure *atomic.Int64) *writer {
	w := &writer{t: t, maps: maps, random: random, now: map[string]*corev1.ConfigMap{}, deeds: map[string][]writeRecord{}, done: done, unsure: unsure}
	for i := range 12 {
		w.names = append(w.names, fmt.Sprintf("w%d-%02d", number, i))
	}
	return w
}

// run writes until ctx ends, and then finishes the inflight write.
func (w *writer) run(ctx context.Context) {
	for ctx.Err() == nil && !w.t.Failed() {
		name := w.names[w.random.IntN(len(w.names))]
		switch {
		case w.now[name] == nil:
			w.create(name)
		case w.random.IntN(3) == 0:
			w.remove(name)
		default:
			w.update(name)
		}
	}
}

// soon bounds one request: a server that was killed does not answer.
func soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}

func (w *writer) value() string {
	w.serial++
	return fmt.Sprintf("%d", w.serial)
}

func (w *writer) create(name string) {
	ctx, cancel := soon()
	defer cancel()
	value := w.value()
	cm, err := w.maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"v": value}}, metav1.CreateOptions{})
	w.settle(name, "create", err, cm, func(is *corev1.ConfigMap) bool { return is != nil && is.Data["v"] == value })
}

func (w *writer) update(name string) {
	ctx, cancel := soon()
	defer cancel()
	wanted := w.now[name].DeepCopy()
	wanted.Data["v"] = w.value()
	cm, err := w.maps.Update(ctx, wanted, metav1.UpdateOptions{})
	w.settle(name, "update", err, cm, func(is *corev1.ConfigMap) bool { return is != nil && is.Data["v"] == wanted.Data["v"] })
}

func (w *writer) remove(name string) {
	ctx, cancel := soon()
	defer cancel()
	uid := w.now[name].UID
	err := w.maps.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	w.settle(name, "delete", err, nil, func(is *corev1.ConfigMap) bool { return is == nil })
}

// settle records a write. If its answer was lost, the write may have happened or not, but the object must be in the state before
// or after it.
func (w *writer) settle(name, what string, err error, after *corev1.ConfigMap, happened func(*corev1.ConfigMap) bool) {
	if err == nil {
		w.done.Add(1)
		w.note(name, after)
		return
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && !lost(status.Status()) {
		w.t.Errorf("%s %s: %v", what, name, err)
		return
	}
	w.unsure.Add(1)
	is := w.read(name)
	switch was := w.now[name]; {
	case happened(is):
		w.note(name, is)
	case was == nil && is == nil, was != nil && is != nil && was.ResourceVersion == is.ResourceVersion:
	default:
		w.t.Errorf("%s was %s and is %s after a %s that failed with: %v", name, brief(was), brief(is), what, err)
	}
}

// lost reports whether an error leaves open whether the write happened.
func lost(status metav1.Status) bool {
	switch status.Reason {
	case metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout, metav1.StatusReasonServiceUnavailable, metav1.StatusReasonInternalError:
		return true
	}
	return false
}

func brief(cm *corev1.ConfigMap) string {
	if cm == nil {
		return "absent"
	}
	return fmt.Sprintf("%s@%s", cm.Data["v"], cm.ResourceVersion)
}

// read gets an object, and retries until the server answers.
func (w *writer) read(name string) *corev1.ConfigMap {
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		ctx, cancel := soon()
		cm, err := w.maps.Get(ctx, name, metav1.GetOptions{})
		cancel()
		switch {
		case err == nil:
			return cm
		case apierrors.IsNotFound(err):
			return nil
		case time.Now().After(deadline):
			w.t.Errorf("reading %s: %v", name, err)
			return w.now[name]
		}
	}
}

// note records the new state of an object.
func (w *writer) note(name string, is *corev1.ConfigMap) {
	was := w.now[name]
	switch {
	case is == nil:
		w.deeds[name] = append(w.deeds[name], writeRecord{"DELETED", was.Data["v"], ""})
		delete(w.now, name)
		return
	case was == nil:
		w.deeds[name] = append(w.deeds[name], writeRecord{"ADDED", is.Data["v"], is.ResourceVersion})
	default:
		w.deeds[name] = append(w.deeds[name], writeRecord{"MODIFIED", is.Data["v"], is.ResourceVersion})
	}
	w.now[name] = is
}
