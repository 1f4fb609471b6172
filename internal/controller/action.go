package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/client"
)

// Object is any object of the API.
type Object interface {
	runtime.Object
	metav1.Object
}

// Action is a write to the API or another effect. Loops make Actions with the functions below; tests read them with String.
type Action interface {
	fmt.Stringer
	do(ctx context.Context, a *actor) error
}

// Create creates an object.
func Create(obj Object) Action { return &write{verb: "create", object: obj} }

// Update replaces an object, which carries the resourceVersion it was observed at.
func Update(obj Object) Action { return &write{verb: "update", object: obj} }

// UpdateStatus replaces an object's status.
func UpdateStatus(obj Object) Action {
	return &write{verb: "update", subresource: "status", object: obj}
}

// Patch patches an object, or its subresource if that is not empty. obj is the object as observed.
func Patch(obj Object, subresource string, kind types.PatchType, data []byte) Action {
	return &write{verb: "patch", subresource: subresource, object: obj, patch: kind, data: data}
}

// Delete deletes the object with the observed uid, in any version. It is no error if it has been deleted already.
func Delete(obj Object, opts metav1.DeleteOptions) Action {
	if uid := obj.GetUID(); uid != "" && opts.Preconditions == nil {
		opts.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	return &write{verb: "delete", object: obj, delete: opts}
}

// Event records an Event about an object.
func Event(about Object, kind, reason, format string, args ...any) Action {
	return &event{about, kind, reason, fmt.Sprintf(format, args...)}
}

// Call calls a function with the loop's client, for what the other actions cannot do. what describes it in String.
func Call(what string, call func(context.Context, *client.Client) error) Action {
	return &custom{what, call}
}

// Parallel carries out actions at the same time, at most limit of them, and joins their errors.
func Parallel(limit int, actions ...Action) Action { return &parallel{limit, actions} }

// SlowStart carries out actions in batches of one, two, four, ... and stops after a batch in which one failed: what fails once, like a quota
// that is used up, is not tried hundreds of times. failed, if not nil, is called with the number of actions that failed or were skipped.
func SlowStart(failed func(n int), actions ...Action) Action { return &slowStart{failed, actions} }

// Sequence carries out actions in order until one fails. failed, if not nil, is then called with the error; it returns the actions that record
// the failure and the error to return for it. For use within Parallel and SlowStart: the actions of a Decision are in order anyway.
func Sequence(failed func(error) ([]Action, error), actions ...Action) Action {
	return &sequence{failed, actions}
}

type write struct {
	verb, subresource string
	object            Object
	patch             types.PatchType
	data              []byte
	delete            metav1.DeleteOptions
	result            Object // what the API server answered
}

func (w *write) String() string {
	s := w.verb + " " + kindOf(w.object) + " " + KeyOf(w.object).String()
	if w.object.GetName() == "" {
		s += w.object.GetGenerateName() + "*"
	}
	if w.subresource != "" {
		s += " " + w.subresource
	}
	if len(w.data) > 0 {
		s += " " + string(w.data)
	}
	return s
}

// Written returns the verb, the subresource and the object that an action writes. ok is false for actions that write none.
func Written(a Action) (verb, subresource string, obj Object, ok bool) {
	if w, ok := a.(*write); ok {
		return w.verb, w.subresource, w.object, true
	}
	return "", "", nil, false
}

// Result returns the object that the API server answered a write with, nil if the write was not carried out or deleted the object. A Decision's
// Then may call it.
func Result(a Action) Object {
	if w, ok := a.(*write); ok {
		return w.result
	}
	return nil
}

// Inner returns the actions that a Parallel, SlowStart or Sequence action consists of.
func Inner(a Action) []Action {
	switch a := a.(type) {
	case *parallel:
		return a.actions
	case *slowStart:
		return a.actions
	case *sequence:
		return a.actions
	}
	return nil
}

type event struct {
	about        Object
	kind, reason string
	message      string
}

func (e *event) String() string {
	return fmt.Sprintf("event %s %s %s %s: %s", kindOf(e.about), KeyOf(e.about), e.kind, e.reason, e.message)
}

func (e *event) do(_ context.Context, a *actor) error {
	a.recorder.Event(e.about, e.kind, e.reason, e.message)
	return nil
}

type custom struct {
	what string
	call func(context.Context, *client.Client) error
}

func (c *custom) String() string                         { return c.what }
func (c *custom) do(ctx context.Context, a *actor) error { return c.call(ctx, a.client) }

type parallel struct {
	limit   int
	actions []Action
}

func (t *parallel) String() string { return fmt.Sprintf("%d at a time: %v", t.limit, t.actions) }

func (t *parallel) do(ctx context.Context, a *actor) error {
	errs := make([]error, len(t.actions))
	slots := make(chan struct{}, max(t.limit, 1))
	var wg sync.WaitGroup
	for i, action := range t.actions {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = action.do(ctx, a)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

type slowStart struct {
	failed  func(int)
	actions []Action
}

func (s *slowStart) String() string { return fmt.Sprintf("slowly: %v", s.actions) }

func (s *slowStart) do(ctx context.Context, a *actor) error {
	rest := s.actions
	for size := 1; len(rest) > 0; size *= 2 {
		batch := rest[:min(size, len(rest))]
		rest = rest[len(batch):]
		errs := make([]error, len(batch))
		var wg sync.WaitGroup
		for i, action := range batch {
			wg.Go(func() { errs[i] = action.do(ctx, a) })
		}
		wg.Wait()
		failed := 0
		for _, err := range errs {
			if err != nil {
				failed++
			}
		}
		if failed > 0 {
			if s.failed != nil {
				s.failed(failed + len(rest))
			}
			return errors.Join(errs...)
		}
	}
	return nil
}

type sequence struct {
	failed  func(error) ([]Action, error)
	actions []Action
}

func (s *sequence) String() string { return fmt.Sprintf("in order: %v", s.actions) }

func (s *sequence) do(ctx context.Context, a *actor) error {
	for _, action := range s.actions {
		err := action.do(ctx, a)
		if err == nil {
			continue
		}
		if s.failed == nil {
			return err
		}
		record, err := s.failed(err)
		for _, r := range record {
			err = errors.Join(err, r.do(ctx, a))
		}
		return err
	}
	return nil
}
