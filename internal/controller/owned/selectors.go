package owned

import (
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/controller"
)

// selectorIndex is the name of the index of owners by what they select.
const selectorIndex = "owned.selector"

// anyLabel is the index value of owners that require no particular label, which may select pods of any labels.
const anyLabel = ""

// IndexSelectors indexes the owners that an informer holds by a label that their selectors require, so that finding the owners that select an
// object need not go through all of them. selectorOf returns an owner's selector.
func IndexSelectors[T controller.Object](informer cache.SharedIndexInformer, selectorOf func(T) *metav1.LabelSelector) {
	if _, indexed := informer.GetIndexer().GetIndexers()[selectorIndex]; indexed {
		return
	}
	err := informer.AddIndexers(cache.Indexers{selectorIndex: func(obj any) ([]string, error) {
		owner, ok := obj.(T)
		if !ok {
			return nil, nil
		}
		selector, err := metav1.LabelSelectorAsSelector(selectorOf(owner))
		if err != nil || selector.Empty() {
			return nil, nil // an empty selector selects nothing
		}
		return []string{owner.GetNamespace() + "/" + requiredLabel(selector)}, nil
	}})
	if err != nil {
		panic(fmt.Sprintf("indexing by selector: %v", err)) // only if the index name is in use
	}
}

// Selecting returns the keys of the owners that select an object. IndexSelectors must have been called for their informer.
func Selecting[T controller.Object](owners cache.Indexer, selectorOf func(T) *metav1.LabelSelector, obj metav1.Object) []controller.Key {
	values := []string{obj.GetNamespace() + "/" + anyLabel}
	for name, value := range obj.GetLabels() {
		values = append(values, obj.GetNamespace()+"/"+name+"="+value)
	}
	var keys []controller.Key
	for _, value := range values {
		found, err := owners.ByIndex(selectorIndex, value)
		if err != nil {
			return nil // cannot happen: IndexSelectors made the index
		}
		for _, o := range found {
			owner, ok := o.(T)
			if !ok {
				continue
			}
			if selector, err := metav1.LabelSelectorAsSelector(selectorOf(owner)); err == nil && selector.Matches(labels.Set(obj.GetLabels())) {
				keys = append(keys, controller.KeyOf(owner))
			}
		}
	}
	return keys
}

// requiredLabel returns a label, as name=value, that every selected object has, or anyLabel. pod-template-hash is preferred, as it tells the
// ReplicaSets of a Deployment apart.
func requiredLabel(selector labels.Selector) string {
	requirements, _ := selector.Requirements()
	label := anyLabel
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.ValuesUnsorted(); len(values) == 1 {
				if label = r.Key() + "=" + values[0]; r.Key() == appsv1.DefaultDeploymentUniqueLabelKey {
					return label
				}
			}
		}
	}
	return label
}

// Keys returns the owners of a kind that a change of an object concerns: its controller before and after, or for an object without a
// controller the owners that might adopt it, which selecting returns.
func Keys(kind string, before, after metav1.Object, selecting func(metav1.Object) []controller.Key) []controller.Key {
	var keys []controller.Key
	was, is := controllerOf(before), controllerOf(after)
	if was != nil && was.Kind == kind && (is == nil || is.UID != was.UID) {
		keys = append(keys, controller.Key{Namespace: before.GetNamespace(), Name: was.Name})
	}
	switch {
	case after == nil, before != nil && before.GetResourceVersion() == after.GetResourceVersion():
	case is != nil:
		if is.Kind == kind {
			keys = append(keys, controller.Key{Namespace: after.GetNamespace(), Name: is.Name})
		}
	case after.GetDeletionTimestamp() != nil: // an object that is being deleted is not adopted
	case before == nil, was != nil, !maps.Equal(before.GetLabels(), after.GetLabels()):
		keys = append(keys, selecting(after)...)
	}
	return keys
}

func controllerOf(obj metav1.Object) *metav1.OwnerReference {
	if obj == nil {
		return nil
	}
	return metav1.GetControllerOfNoCopy(obj)
}
