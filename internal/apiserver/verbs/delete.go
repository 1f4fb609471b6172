package verbs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/request"
	"skiff/internal/cache"
	"skiff/internal/catalog"
)

// delete removes an object, or marks it for deletion if finalizers or a grace period hold it.
func (rq *Request) delete() error {
	if err := rq.Negotiate(); err != nil {
		return err
	}
	opts, err := rq.deleteOptions()
	if err != nil {
		return err
	}
	if ptr.Deref(opts.IgnoreStoreReadErrorWithClusterBreakingPotential, false) {
		return rq.deleteUnreadable(opts)
	}
	it, removed, err := rq.deleteOne(rq.Ctx, rq.Route.Namespace, rq.Route.Name, opts)
	if err != nil {
		return err
	}
	if removed && !rq.Endpoint.Info.Stored.Deletion.ReturnsObject {
		return rq.SendStatus(&metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{
			Name: rq.Route.Name, Group: rq.Endpoint.Info.GVR.Group, Kind: rq.Endpoint.Info.GVR.Resource, UID: types.UID(it.UID)}})
	}
	code := http.StatusOK
	if !removed && opts.OrphanDependents != nil && !*opts.OrphanDependents {
		code = http.StatusAccepted
	}
	return rq.SendItem(code, it)
}

// deleteUnreadable removes an object that is in the store but cannot be decoded. It needs the verb unsafe-delete-ignore-read-errors.
func (rq *Request) deleteUnreadable(opts *metav1.DeleteOptions) error {
	const verb = "unsafe-delete-ignore-read-errors"
	gvr := rq.Endpoint.Info.GVR
	a := &authz.Attributes{User: rq.User, Verb: verb, Resource: true, Group: gvr.Group, Version: gvr.Version, Plural: gvr.Resource, Namespace: rq.Route.Namespace, Name: rq.Route.Name}
	if decision, reason, err := rq.API.Authorizer.Authorize(rq.Ctx, a); decision != authz.Allow {
		if err == nil {
			err = fmt.Errorf("not permitted to do %q, reason: %s", verb, reason)
		}
		return apierrors.NewForbidden(gvr.GroupResource(), rq.Route.Name, err)
	}
	if err := rq.Endpoint.Registry.DeleteUnreadable(rq.Ctx, rq.Route.Namespace, rq.Route.Name, request.DryRun(opts.DryRun)); err != nil {
		return err
	}
	return rq.SendStatus(&metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Name: rq.Route.Name, Group: gvr.Group, Kind: gvr.Resource}})
}

// deleteOne takes the deletion of one object through admission and hands it over to the registry. It reports whether the object was removed.
func (rq *Request) deleteOne(ctx context.Context, namespace, name string, opts *metav1.DeleteOptions) (*cache.Item, bool, error) {
	dry := request.DryRun(opts.DryRun)
	validate := func(ctx context.Context, _, old catalog.Object) error {
		attributes := rq.AdmissionAttributes(admission.Delete, nil, old, dry)
		attributes.Name, attributes.Namespace, attributes.DeleteOptions = name, namespace, opts
		if err := rq.API.Admission.Admit(ctx, attributes, rq.Trace.Stage); err != nil {
			return err
		}
		return rq.API.Admission.Validate(ctx, attributes, rq.Trace.Stage)
	}
	if warnings := rq.Endpoint.Info.Stored.Deletion.Warnings; warnings != nil {
		for _, text := range warnings(opts) {
			rq.Warn(text)
		}
	}
	w := rq.RegistryWrite(dry, validate)
	it, removed, err := rq.Endpoint.Registry.Delete(ctx, namespace, name, opts, w)
	if err == nil && !dry {
		rq.Trace.Wrote(rq.Endpoint.Traced, it.UID, it.Revision)
	}
	return it, removed, err
}

// deleteOptions reads the options of a deletion from the body or, if that is empty, from the parameters.
func (rq *Request) deleteOptions() (*metav1.DeleteOptions, error) {
	opts := &metav1.DeleteOptions{}
	body, err := rq.ReadBody()
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		if err := rq.decodeDeleteOptions(body, opts); err != nil {
			return nil, err
		}
	} else if err := queryDeleteOptions(rq, opts); err != nil {
		return nil, err
	}
	if errs := validation.ValidateDeleteOptions(opts); len(errs) > 0 {
		return nil, apierrors.NewInvalid(request.MetaKind("DeleteOptions"), "", errs)
	}
	return opts, nil
}

func (rq *Request) decodeDeleteOptions(body []byte, opts *metav1.DeleteOptions) error {
	media, err := codec.MediaOf(rq.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	return codec.DecodeOptions(body, media, "DeleteOptions", opts)
}

func queryDeleteOptions(rq *Request, opts *metav1.DeleteOptions) error {
	q := rq.Query
	opts.DryRun = q["dryRun"]
	if v := q.Get("gracePeriodSeconds"); v != "" {
		n, err := request.ParseInt(q, "gracePeriodSeconds")
		if err != nil {
			return err
		}
		opts.GracePeriodSeconds = &n
	}
	if v := q.Get("propagationPolicy"); v != "" {
		policy := metav1.DeletionPropagation(v)
		opts.PropagationPolicy = &policy
	}
	if v := q.Get("orphanDependents"); v != "" {
		orphan := request.ParseFlag(v)
		opts.OrphanDependents = &orphan
	}
	if v := q.Get("ignoreStoreReadErrorWithClusterBreakingPotential"); v != "" {
		ignore := request.ParseFlag(v)
		opts.IgnoreStoreReadErrorWithClusterBreakingPotential = &ignore
	}
	return nil
}

// deleteWorkers is how many objects of a collection are deleted at once.
const deleteWorkers = 8

// deleteCollection deletes every object that a list with the same parameters returns.
func (rq *Request) deleteCollection() error {
	if err := rq.Negotiate(); err != nil {
		return err
	}
	list, err := request.ParseListOptions(rq.Query)
	if err != nil {
		return err
	}
	if err := registry.ValidateListOptions(list, false); err != nil {
		return err
	}
	opts, err := rq.deleteOptions()
	if err != nil {
		return err
	}
	if ptr.Deref(opts.IgnoreStoreReadErrorWithClusterBreakingPotential, false) {
		return apierrors.NewInvalid(request.MetaKind("DeleteOptions"), "", field.ErrorList{field.Invalid(field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true,
			"is not allowed with DELETECOLLECTION, try again after removing the option")})
	}
	selector, err := rq.Endpoint.Registry.NewSelector(rq.Endpoint.Info, rq.Route.Namespace, list.LabelSelector, list.FieldSelector)
	if err != nil {
		return err
	}
	selector.Reading, selector.Uninitialized = rq.Reading(), true // as upstream: who deletes everything means those, too
	page, err := rq.Endpoint.Registry.List(rq.Ctx, registry.List{Selector: selector, Limit: list.Limit, Continue: list.Continue, ResourceVersion: list.ResourceVersion, Match: list.ResourceVersionMatch})
	if err != nil {
		return err
	}
	if page.Items, err = rq.Endpoint.Registry.CurrentAll(rq.Ctx, page.Items, rq.Reading()); err != nil {
		return err // rather than answer with the error after the objects have gone
	}
	if err := rq.deleteAll(&page, opts); err != nil {
		return err
	}
	return rq.SendList(page)
}

// deleteAll deletes the objects of a page, several at a time. After a failure it starts no further deletion; it returns the error of the first object,
// in the order of the page, that could not be deleted.
func (rq *Request) deleteAll(page *registry.Page, opts *metav1.DeleteOptions) error {
	type numbered struct {
		it *cache.Item
		n  int
	}
	work := make(chan numbered)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failure error
	first := 0 // index of the object whose deletion failed with failure
	stop := make(chan struct{})
	fail := func(n int, err error) {
		mu.Lock()
		defer mu.Unlock()
		if failure == nil {
			close(stop)
		}
		if failure == nil || n < first {
			failure, first = err, n
		}
	}
	for range min(deleteWorkers, len(page.Items)) {
		wg.Go(func() {
			n := 0
			defer func() {
				if p := recover(); p != nil { // the front recovers only on the request's own goroutine
					fail(n, apierrors.NewInternalError(fmt.Errorf("deleting panicked: %v\n%s", p, debug.Stack())))
				}
			}()
			for w := range work {
				n = w.n
				if _, _, err := rq.deleteOne(rq.Ctx, w.it.Namespace, w.it.Name, opts.DeepCopy()); err != nil && !apierrors.IsNotFound(err) {
					fail(n, err)
					return
				}
			}
		})
	}
	n := 0
	err := page.Each(rq.Ctx, func(it *cache.Item) error {
		select {
		case work <- numbered{it, n}:
			n++
			return nil
		case <-stop:
			return errDeletionStopped
		case <-rq.Ctx.Done():
			return rq.Ctx.Err()
		}
	})
	close(work)
	wg.Wait()
	if failure != nil {
		err = failure
	}
	return rq.Endpoint.Registry.Failure(err)
}

// errDeletionStopped ends the iteration over a collection of which an object could not be deleted.
var errDeletionStopped = errors.New("an object could not be deleted")
