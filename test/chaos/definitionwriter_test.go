//go:build linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// thing is a custom object, as far as tests look at it.
type thing struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Spec       struct {
		V string `json:"v"`
	} `json:"spec"`
}

// thingWrite is an acknowledged write.
type thingWrite struct {
	name, value string
	uid         types.UID
	revision    int64 // 0 of a deletion, which does not say
	deleted     bool
}

// thingWriter creates, updates and deletes objects that only it writes.
type thingWriter struct {
	t       *testing.T
	api     *rawAPI
	of      *thingDefinition
	number  int
	random  *rand.Rand
	serial  int
	now     map[string]*thing
	turn    int64 // of the definition when now was last compared with what is there
	writes  []thingWrite
	answers map[string][]string // the last answers about each object, for messages
	refused map[string]int      // requests that failed because the definition was being replaced, by status
}

const thingsPerWriter = 6

// run writes until the definition's time is over.
func (w *thingWriter) run() {
	for !w.of.stopped.Load() && !w.t.Failed() {
		w.step()
		time.Sleep(time.Duration(w.random.IntN(12)) * time.Millisecond)
	}
}

// step writes once.
func (w *thingWriter) step() {
	name := fmt.Sprintf("w%d-%d", w.number, w.random.IntN(thingsPerWriter))
	version := fmt.Sprint("v", 1+w.random.IntN(2))
	before := w.of.turn.Load()
	if before%2 == 0 && before != w.turn && !w.resolve(before) {
		return
	}
	path, was := w.of.objects(version, false), w.now[name]
	var got answer
	value := ""
	switch {
	case was == nil:
		value = w.value()
		object := thing{APIVersion: thingGroup + "/" + version, Kind: w.of.kind(), Metadata: metav1.ObjectMeta{Name: name, Labels: map[string]string{"part": fmt.Sprint(w.number % 4)}}}
		object.Spec.V = value
		got = w.api.call("POST", path, object)
	case w.random.IntN(4) == 0:
		got = w.api.call("DELETE", path+"/"+name, map[string]any{"preconditions": map[string]any{"uid": was.Metadata.UID}})
	case w.random.IntN(2) == 0:
		value = w.value()
		got = w.api.call(http.MethodPatch, path+"/"+name, map[string]any{"metadata": map[string]any{"uid": was.Metadata.UID}, "spec": map[string]any{"v": value}})
	default:
		value = w.value()
		object := *was
		object.APIVersion, object.Spec.V = thingGroup+"/"+version, value
		got = w.api.call("PUT", path+"/"+name, object)
	}
	w.settle(name, value, before, got)
}

// resolve finds out which objects are there after the definition was replaced. It returns false if it is being replaced again.
func (w *thingWriter) resolve(turn int64) bool {
	for i := range thingsPerWriter {
		name := fmt.Sprintf("w%d-%d", w.number, i)
		got := w.api.call("GET", w.of.objects("v1", false)+"/"+name, nil)
		if w.of.turn.Load() != turn {
			return false
		}
		is := &thing{}
		switch was := w.now[name]; {
		case got.code == http.StatusNotFound:
			delete(w.now, name)
		case !got.ok():
			w.t.Errorf("reading %s (turn %d): %v", name, turn, got)
		default:
			got.decode(w.t, is)
			if was == nil || is.Metadata.UID != was.Metadata.UID || is.Spec.V != was.Spec.V || is.Metadata.ResourceVersion != was.Metadata.ResourceVersion {
				w.t.Errorf("%s is %v after its definition was replaced, and was last written as %+v after %q", name, got, was, w.answers[name])
			}
		}
	}
	w.turn = turn
	return true
}

func (w *thingWriter) value() string {
	w.serial++
	return fmt.Sprintf("%d.%d", w.number, w.serial)
}

// settle records the answer to a write. A write fails only because the definition is being replaced.
func (w *thingWriter) settle(name, value string, turn int64, got answer) {
	w.answers[name] = append(w.answers[name][max(0, len(w.answers[name])-5):], fmt.Sprintf("turn %d to %d, %s: %.200s", turn, w.of.turn.Load(), value, got))
	switch {
	case got.ok() && value == "":
		w.writes = append(w.writes, thingWrite{name: name, uid: w.now[name].Metadata.UID, deleted: true})
		delete(w.now, name)
	case got.ok():
		is := &thing{}
		got.decode(w.t, is)
		if is.Spec.V != value {
			w.t.Errorf("%s: wrote %s and was answered %v", name, value, got)
		}
		w.writes = append(w.writes, thingWrite{name: name, value: value, uid: is.Metadata.UID, revision: parse(w.t, is.Metadata.ResourceVersion)})
		is.Metadata.ManagedFields = nil
		w.now[name] = is
	case turn%2 == 0 && w.of.turn.Load() == turn || !replacing(got):
		w.t.Errorf("%s (turn %d to %d): %v", name, turn, w.of.turn.Load(), got)
	default:
		w.refused[fmt.Sprint(got.code, " ", got.status().Reason)]++
		if got.code == http.StatusNotFound || got.code == http.StatusConflict || got.code == http.StatusUnprocessableEntity {
			delete(w.now, name) // gone with its definition; else the next create says that it exists
		}
	}
}

// replacing reports whether a write may fail like this while its definition is deleted and created again.
func replacing(got answer) bool {
	if got.code == http.StatusNotFound { // the object or, in plain words, the resource
		return true
	}
	switch got.status().Reason {
	case metav1.StatusReasonForbidden, // a create while the definition is terminating
		metav1.StatusReasonConflict,      // the object was deleted or is another
		metav1.StatusReasonInvalid,       // a patch with the UID of another incarnation
		metav1.StatusReasonAlreadyExists: // the writer has forgotten an object that is not gone yet
		return true
	case metav1.StatusReasonMethodNotAllowed, metav1.StatusReasonBadRequest: // the scope has changed
		return true
	}
	return false
}
