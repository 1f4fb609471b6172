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

// selectors is the name of the index of owners by what they select.
const selectors = "owned.selector"

// anyLabel is where owners are found that require no label, which pods of any labels may be selected by.
const anyLabel = ""

// IndexSelectors has an informer of owners keep them by a label that they require of what they select, so that finding who selects an
// object need not go through all owners.
func IndexSelectors[T controller.Object](informer cache.SharedIndexInformer, of func(T) *metav1.LabelSelector) {
	if _, there := informer.GetIndexer().GetIndexers()[selectors]; there {
		return
	}
	err := informer.AddIndexers(cache.Indexers{selectors: func(obj any) ([]string, error) {
		owner, ok := obj.(T)
		if !ok {
			return nil, nil
		}
		selector, err := metav1.LabelSelectorAsSelector(of(owner))
		if err != nil || selector.Empty() {
			return nil, nil // it selects nothing
		}
		return []string{owner.GetNamespace() + "/" + required(selector)}, nil
	}})
	if err != nil {
		panic(fmt.Sprintf("indexing by selector: %v", err)) // only if somebody else uses the name
	}
}

// Selecting are the keys of the owners that select an object.
func Selecting[T controller.Object](owners cache.Indexer, of func(T) *metav1.LabelSelector, obj metav1.Object) []controller.Key {
	values := []string{obj.GetNamespace() + "/" + anyLabel}
	for name, value := range obj.GetLabels() {
		values = append(values, obj.GetNamespace()+"/"+name+"="+value)
	}
	var keys []controller.Key
	for _, value := range values {
		found, err := owners.ByIndex(selectors, value)
		if err != nil {
			return nil // the index is there
		}
		for _, o := range found {
			owner, ok := o.(T)
			if !ok {
				continue
			}
			if selector, err := metav1.LabelSelectorAsSelector(of(owner)); err == nil && selector.Matches(labels.Set(obj.GetLabels())) {
				keys = append(keys, controller.KeyOf(owner))
			}
		}
	}
	return keys
}

// required is a label, as name=value, that everything has that a selector selects, if there is one. The ReplicaSets of a Deployment have one that
// tells them apart.
func required(selector labels.Selector) string {
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

// Keys says which owners of a kind a change of an object concerns: the one that controls it, or did; for one that nobody controls, those that
// might adopt it, whom selecting finds.
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
	case after.GetDeletionTimestamp() != nil: // nobody adopts it any more
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
