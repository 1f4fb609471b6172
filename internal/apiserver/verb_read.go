package apiserver

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/registry"
)

// get answers with one object. Subresources that show the object itself (status, …) are the object.
func (rq *request) get() error {
	if err := rq.negotiate(); err != nil {
		return err
	}
	rq.trace.Stage("cache")
	it, err := rq.end.registry.Get(rq.ctx, rq.route.namespace, rq.route.name, rq.query.Get("resourceVersion"))
	if err != nil {
		return err
	}
	return rq.answer(http.StatusOK, it)
}

// list answers with the objects of a collection.
func (rq *request) list() error {
	if err := rq.negotiate(); err != nil {
		return err
	}
	opts, err := parseListOptions(rq.query)
	if err != nil {
		return err
	}
	if err := registry.ValidateListOptions(opts, false); err != nil {
		return err
	}
	if opts.Limit < 0 {
		opts.Limit = 0
	}
	selector, err := rq.end.registry.NewSelector(rq.end.info, rq.route.namespace, opts.LabelSelector, opts.FieldSelector)
	if err != nil {
		return err
	}
	if rq.route.name != "" {
		return apierrors.NewBadRequest("a list names no object")
	}
	rq.trace.Stage("cache")
	page, err := rq.end.registry.List(rq.ctx, registry.List{Selector: selector, Limit: opts.Limit, Continue: opts.Continue,
		ResourceVersion: opts.ResourceVersion, Match: opts.ResourceVersionMatch})
	if err != nil {
		return err
	}
	return rq.answerList(page)
}
