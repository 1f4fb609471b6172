//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const valueAnnotation = "chaos.skiff/value"

// kept is an object of any kind that only its keeper writes. What it holds is in an annotation.
type kept struct {
	path, name string // of its resource
	text       string // the object without annotation; %s is where "metadata" goes
	value      string // as last acknowledged; "" if it does not exist
	finalizers []string
}

// keeper writes objects, and knows after each answer, or lost answer, what is there.
type keeper struct {
	t      *testing.T
	api    *rawAPI
	serial int
	done   *atomic.Int64 // acknowledged writes
	unsure *atomic.Int64 // writes whose answer was lost
}

// read returns an object's value, and whether it is being deleted, as soon as the server answers.
func (k *keeper) read(o *kept) (value string, deleting bool) {
	got := k.answered("GET", o.path+"/"+o.name)
	switch {
	case got.code == http.StatusNotFound:
		return "", false
	case !got.ok():
		k.t.Errorf("reading %s/%s: %v", o.path, o.name, got)
		return o.value, false
	}
	var object struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(got.body, &object); err != nil {
		k.t.Errorf("reading %s/%s: %v", o.path, o.name, err)
	}
	return object.Metadata.Annotations[valueAnnotation], object.Metadata.DeletionTimestamp != nil
}

// answered sends a read until the server answers it.
func (k *keeper) answered(method, path string) answer {
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(2 * time.Millisecond) {
		got := k.api.call(method, path, nil)
		if got.err == nil && got.code < 500 && got.code != http.StatusTooManyRequests || k.t.Failed() {
			return got
		}
		if time.Now().After(deadline) {
			k.t.Errorf("%s %s: %v", method, path, got)
			return got
		}
	}
}

func (k *keeper) create(o *kept) bool {
	k.serial++
	value := fmt.Sprint("v", k.serial)
	meta, err := json.Marshal(map[string]any{"name": o.name, "annotations": map[string]string{valueAnnotation: value}, "finalizers": o.finalizers})
	if err != nil {
		k.t.Error(err)
		return false
	}
	return k.settle(o, value, k.api.call("POST", o.path, fmt.Sprintf(o.text, meta)))
}

// update writes another value, and what else a merge patch has.
func (k *keeper) update(o *kept, patch map[string]any) bool {
	k.serial++
	value := fmt.Sprint("v", k.serial)
	body := map[string]any{"metadata": map[string]any{"annotations": map[string]any{valueAnnotation: value}}}
	for name, part := range patch {
		body[name] = part
	}
	return k.settle(o, value, k.api.call(http.MethodPatch, o.path+"/"+o.name, body))
}

func (k *keeper) remove(o *kept) bool {
	return k.settle(o, "", k.api.call("DELETE", o.path+"/"+o.name, nil))
}

// settle records a write. It returns whether it has happened: of a write whose answer was lost, that is found out.
func (k *keeper) settle(o *kept, value string, got answer) bool {
	if got.ok() {
		k.done.Add(1)
		o.value = value
		return true
	}
	if got.err == nil && got.code < 500 && got.code != http.StatusTooManyRequests {
		k.t.Errorf("writing %q to %s/%s, which had %q: %v", value, o.path, o.name, o.value, got)
		return false
	}
	k.unsure.Add(1)
	is, deleting := k.read(o)
	switch {
	case value == "" && (is == "" || deleting):
		o.value = ""
		return true
	case is != o.value && is != value || deleting:
		k.t.Errorf("%s/%s has %q (deleting: %v), had %q before %q was written and the answer was: %v", o.path, o.name, is, deleting, o.value, value, got)
	}
	happened := is == value
	o.value = is
	return happened
}

// check checks that an object is as it was last acknowledged.
func (k *keeper) check(o *kept) {
	if is, deleting := k.read(o); is != o.value && !(deleting && o.value == "") {
		k.t.Errorf("%s/%s has %q, must have %q", o.path, o.name, is, o.value)
	}
}
