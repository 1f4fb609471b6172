package main

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// follow calls each with every change after a version, until it says that it has seen enough. A server may end a watch whenever it likes, upstream's does so
// to one that reads too slowly: it goes on, then, where that one ended.
func follow[T metav1.Object](ctx context.Context, begin func(context.Context, metav1.ListOptions) (watch.Interface, error), version string, each func(T) bool) error {
	for ctx.Err() == nil {
		w, err := begin(ctx, metav1.ListOptions{LabelSelector: selector, ResourceVersion: version})
		if err != nil {
			return err
		}
		enough, err := read(w, &version, each)
		w.Stop()
		if enough || err != nil {
			return err
		}
	}
	return ctx.Err()
}

// read calls each with the changes of one watch and keeps the version of the last.
func read[T metav1.Object](w watch.Interface, version *string, each func(T) bool) (enough bool, err error) {
	for e := range w.ResultChan() {
		object, ok := e.Object.(T)
		if !ok {
			return false, apierrors.FromObject(e.Object)
		}
		*version = object.GetResourceVersion()
		if each(object) {
			return true, nil
		}
	}
	return false, nil
}
