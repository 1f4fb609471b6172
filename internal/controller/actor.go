package controller

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"skiff/internal/client"
)

// actor carries out a loop's actions with the loop's identity.
type actor struct {
	name     string
	client   *client.Client
	recorder record.EventRecorder
	log      *slog.Logger
	// wrote is called after every acknowledged write with the resource, the object and its new resourceVersion, which is empty if it was deleted.
	wrote func(ctx context.Context, resource schema.GroupVersionResource, key Key, uid types.UID, version string)
	// hidden is called after a write that created an object which waits for its initializers: the caches will observe it when it does not any more.
	hidden func(ctx context.Context, resource schema.GroupVersionResource, key Key, uid types.UID)

	mu    sync.Mutex
	rests map[schema.GroupVersion]rest.Interface
}

// kindOf returns the kind of an object of a known type.
func kindOf(obj Object) string { return gvkOf(obj).Kind }

func gvkOf(obj Object) schema.GroupVersionKind {
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil || len(kinds) == 0 {
		return schema.GroupVersionKind{Kind: fmt.Sprintf("%T", obj)}
	}
	return kinds[0]
}

// ResourceOf returns the resource that serves objects of obj's type.
func ResourceOf(obj Object) schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(gvkOf(obj))
	return plural
}

// rest returns the client of a group version.
func (a *actor) rest(gv schema.GroupVersion) (rest.Interface, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.rests[gv]; r != nil {
		return r, nil
	}
	config := a.client.Config()
	config.GroupVersion, config.APIPath = &gv, "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	r, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	if a.rests == nil {
		a.rests = map[schema.GroupVersion]rest.Interface{}
	}
	a.rests[gv] = r
	return r, nil
}

func (w *write) do(ctx context.Context, a *actor) error {
	resource := ResourceOf(w.object)
	api, err := a.rest(resource.GroupVersion())
	if err != nil {
		return err
	}
	var r *rest.Request
	switch w.verb {
	case "create":
		r = api.Post().Body(w.object)
	case "update":
		r = api.Put().Name(w.object.GetName()).SubResource(sub(w.subresource)...).Body(w.object)
	case "patch":
		r = api.Patch(w.patch).Name(w.object.GetName()).SubResource(sub(w.subresource)...).Body(w.data)
	case "delete":
		r = api.Delete().Name(w.object.GetName()).Body(&w.delete)
	}
	result := w.object.DeepCopyObject().(Object)
	answer := r.NamespaceIfScoped(w.object.GetNamespace(), w.object.GetNamespace() != "").Resource(resource.Resource).Do(ctx)
	if w.verb == "delete" {
		return w.deleted(ctx, a, resource, answer)
	}
	if err := answer.Into(result); err != nil {
		if name, uid, ok := client.Uninitialized(err); ok && w.verb == "create" {
			a.hidden(ctx, resource, Key{Namespace: w.object.GetNamespace(), Name: name}, uid)
		}
		return err
	}
	w.result = result
	a.wrote(ctx, resource, KeyOf(result), result.GetUID(), result.GetResourceVersion())
	return nil
}

// deleted handles the response to a deletion: a Status if the object is gone, or the object, which still has to terminate.
func (w *write) deleted(ctx context.Context, a *actor, resource schema.GroupVersionResource, answer rest.Result) error {
	obj, err := answer.Get()
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	uid, version := w.object.GetUID(), ""
	switch answer := obj.(type) {
	case *metav1.Status:
		if answer.Details != nil && answer.Details.UID != "" {
			uid = answer.Details.UID
		}
	case metav1.Object:
		uid = answer.GetUID()
		if grace := answer.GetDeletionGracePeriodSeconds(); len(answer.GetFinalizers()) > 0 || grace != nil && *grace > 0 {
			version = answer.GetResourceVersion()
		}
	}
	a.wrote(ctx, resource, KeyOf(w.object), uid, version)
	return nil
}

func sub(subresource string) []string {
	if subresource == "" {
		return nil
	}
	return []string{subresource}
}
