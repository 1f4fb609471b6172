package verbs

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/request"
)

// get answers with one object. A get of status, or of another subresource that updates a part of the object, answers with the whole object.
func (rq *Request) get() error {
	if err := rq.Negotiate(); err != nil {
		return err
	}
	rq.Trace.Stage("cache")
	read := (*registry.Registry).Get
	if rq.includeUninitialized() {
		read = (*registry.Registry).GetUninitialized
	}
	it, err := read(rq.Endpoint.Registry, rq.Ctx, rq.Route.Namespace, rq.Route.Name, rq.Query.Get("resourceVersion"))
	if err != nil {
		return err
	}
	return rq.SendItem(http.StatusOK, it)
}

// list answers with the objects of a collection.
func (rq *Request) list() error {
	if err := rq.Negotiate(); err != nil {
		return err
	}
	opts, err := request.ParseListOptions(rq.Query)
	if err != nil {
		return err
	}
	if err := registry.ValidateListOptions(opts, false); err != nil {
		return err
	}
	if opts.Limit < 0 {
		opts.Limit = 0
	}
	selector, err := rq.Endpoint.Registry.NewSelector(rq.Endpoint.Info, rq.Route.Namespace, opts.LabelSelector, opts.FieldSelector)
	if err != nil {
		return err
	}
	selector.Reading, selector.Uninitialized = rq.Reading(), rq.includeUninitialized()
	if rq.Route.Name != "" {
		return apierrors.NewBadRequest("a list names no object")
	}
	rq.Trace.Stage("cache")
	page, err := rq.Endpoint.Registry.List(rq.Ctx, registry.List{Selector: selector, Limit: opts.Limit, Continue: opts.Continue,
		ResourceVersion: opts.ResourceVersion, Match: opts.ResourceVersionMatch})
	if err != nil {
		return err
	}
	return rq.SendList(page)
}
