package verbs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/request"
	"skiff/internal/cache"
	"skiff/internal/catalog/initializers"
)

// maxInitializationWait is how long a creation waits for the initializers of the object at most, and nine tenths of the time that the request has left.
const maxInitializationWait = 30 * time.Second

// sentInitializers are those that the body of a request names.
type sentInitializers struct {
	sent bool // the body names initializers, if only to name none: a client that does not know the field leaves those there are alone
	in   *initializers.Initializers
}

// includeUninitialized reports whether the client asks for objects that still wait for their initializers, too.
func (rq *Request) includeUninitialized() bool {
	return rq.Query != nil && request.ParseFlag(rq.Query.Get("includeUninitialized"))
}

// readInitializers reads the initializers that a body names.
func (rq *Request) readInitializers(body []byte) error {
	media, err := codec.MediaOf(rq.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	in, sent, err := codec.SentInitializers(body, media)
	if err == nil && sent {
		rq.keepSent(in)
	}
	return err
}

// writesInitializers reports whether the request may change initializers: not through a subresource, and not without the plugin that says who may.
func (rq *Request) writesInitializers() bool {
	return rq.Route.Subresource == "" && rq.API.Admission.Has(admission.InitializersPlugin)
}

func (rq *Request) keepSent(in *initializers.Initializers) {
	if rq.writesInitializers() {
		rq.sentInitializers = sentInitializers{true, in}
	}
}

// setSentInitializers sets the initializers of the written object to those that the body names, if it does.
func (rq *Request) setSentInitializers() {
	if rq.sentInitializers.sent {
		rq.initialization.New = rq.sentInitializers.in.DeepCopy()
	}
}

// setInitializers sets the initializers of the written object to what a patch has made of them.
func (rq *Request) setInitializers(in *initializers.Initializers) {
	if in != rq.initialization.New && rq.writesInitializers() {
		rq.initialization.New = in
	}
}

// takeInitializers removes the initializers from an applied configuration, and keeps them as sent.
func (rq *Request) takeInitializers(applied *unstructured.Unstructured) error {
	metadata, _ := applied.Object["metadata"].(map[string]any)
	value, ok := metadata["initializers"]
	if !ok {
		return nil
	}
	delete(metadata, "initializers")
	in, err := decodeInitializers(value)
	if err == nil {
		rq.keepSent(in)
	}
	return err
}

func decodeInitializers(value any) (*initializers.Initializers, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return codec.DecodeInitializers(encoded)
}

// ofPatch returns in if the object has initializers or the patch may name some; nil for nearly all patches.
func ofPatch(in **initializers.Initializers, patch []byte) **initializers.Initializers {
	if in == nil || *in == nil && !bytes.Contains(patch, []byte("initializers")) {
		return nil
	}
	return in
}

// mergeInitializers removes the initializers from a strategic merge patch, and returns what it makes of those that an object has.
func mergeInitializers(in *initializers.Initializers, patch map[string]any) (*initializers.Initializers, error) {
	metadata, _ := patch["metadata"].(map[string]any)
	value, ok := metadata["initializers"]
	if !ok {
		return in, nil
	}
	delete(metadata, "initializers")
	changes, isMap := value.(map[string]any)
	if !isMap {
		return decodeInitializers(value)
	}
	before := map[string]any{}
	if in != nil {
		encoded, err := json.Marshal(in)
		if err == nil {
			err = json.Unmarshal(encoded, &before)
		}
		if err != nil {
			return nil, err
		}
	}
	after, err := strategicpatch.StrategicMergeMapPatch(before, changes, &initializers.Initializers{})
	if err != nil {
		return nil, strategicFailure(err)
	}
	return decodeInitializers(after)
}

// waitInitialized waits until an object that was just created is initialized, and returns it. It fails if an initializer refuses the object, and if that takes
// too long: the object goes on waiting then. Meanwhile the request keeps nobody else from being served.
func (rq *Request) waitInitialized(it *cache.Item) (*cache.Item, error) {
	rq.Trace.Stage("initialization")
	wait := maxInitializationWait
	if deadline, ok := rq.Ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)*9/10)
	}
	ctx, cancel := context.WithTimeout(rq.Ctx, wait)
	defer cancel()
	defer context.AfterFunc(rq.Shared.Stopping, cancel)()
	selector := registry.Selector{Namespace: it.Namespace, Name: it.Name, Uninitialized: true}
	watch, err := rq.Endpoint.Registry.Watch(ctx, selector, it.Revision)
	if err != nil {
		return nil, err
	}
	defer watch.Close()
	rq.W.Seat.Park() // for good: only the answer is still to be sent
	initialized, err := rq.awaitInitialized(ctx, watch, selector)
	if err != nil && ctx.Err() != nil {
		return nil, rq.initializationTimeout(it)
	}
	return initialized, err
}

// initializationTimeout returns the error of a creation that did not wait longer. It names the object, which is there, for those who let the server choose the
// name.
func (rq *Request) initializationTimeout(it *cache.Item) error {
	gvr := rq.Endpoint.Info.GVR
	err := apierrors.NewTimeoutError(fmt.Sprintf("server has timed out waiting for the initialization of %s %s", rq.Endpoint.Traced, it.Name), 0)
	err.ErrStatus.Details = &metav1.StatusDetails{Name: it.Name, Group: gvr.Group, Kind: gvr.Resource, UID: types.UID(it.UID),
		Causes: []metav1.StatusCause{{Type: initializers.CauseUninitialized, Message: "the object waits for its initializers"}}}
	return err
}

var errDeletedMeanwhile = errors.New("object deleted while waiting for creation")

// awaitInitialized returns the first version of the object of a watch that is initialized.
func (rq *Request) awaitInitialized(ctx context.Context, watch *registry.Watch, selector registry.Selector) (*cache.Item, error) {
	var changes []*cache.Change
	for {
		var err error
		if changes, err = watch.Next(ctx, changes[:0]); err != nil {
			return nil, err
		}
		for _, change := range changes {
			kind, it := selector.Event(change)
			if it == nil {
				continue
			}
			in := codec.InitializersOf(it)
			switch {
			case in.Failed():
				return nil, refusal(in)
			case kind == cache.Deleted:
				return nil, apierrors.NewInternalError(errDeletedMeanwhile)
			case in == nil:
				return it, nil
			}
		}
	}
}

// refusal returns the error with which an initializer has refused an object.
func refusal(in *initializers.Initializers) error {
	status := *in.Result
	if status.Code < http.StatusBadRequest || status.Code > 599 {
		status.Code = http.StatusInternalServerError
	}
	return &apierrors.StatusError{ErrStatus: status}
}
