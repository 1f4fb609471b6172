package owned

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/client"
	"skiff/internal/controller"
)

// ownerIndex is the name of the index by controller, which all loops share.
const ownerIndex = "owned.controller"

// Index indexes the objects of an informer by their controller's uid. Any number of loops may call it.
func Index(informer cache.SharedIndexInformer) {
	if _, indexed := informer.GetIndexer().GetIndexers()[ownerIndex]; indexed {
		return
	}
	err := informer.AddIndexers(cache.Indexers{ownerIndex: func(obj any) ([]string, error) {
		m, ok := obj.(metav1.Object)
		if !ok {
			return nil, nil
		}
		if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
			return []string{string(owner.UID)}, nil
		}
		values := []string{orphans(m.GetNamespace(), anyLabel)}
		for name, value := range m.GetLabels() {
			values = append(values, orphans(m.GetNamespace(), name+"="+value))
		}
		return values, nil
	}})
	if err != nil {
		panic(fmt.Sprintf("indexing by owner: %v", err)) // only if the index name is in use
	}
}

// orphans returns the index value of a namespace's objects that have a label and no controller. It is no uid, as those have no slash.
func orphans(namespace, label string) string { return "orphans/" + namespace + "/" + label }

// By returns the objects that the owner controls, sorted by name.
func By[T metav1.Object](indexer cache.Indexer, owner types.UID) []T {
	return list[T](indexer, string(owner))
}

// Orphans returns the objects of a namespace that have no controller and match a selector, sorted by name.
func Orphans[T metav1.Object](indexer cache.Indexer, namespace string, selector labels.Selector) []T {
	found := list[T](indexer, orphans(namespace, requiredLabel(selector)))
	return slices.DeleteFunc(found, func(obj T) bool { return !selector.Matches(labels.Set(obj.GetLabels())) })
}

// list returns the objects with an index value, sorted by name so that decisions do not depend on the order of a map.
func list[T metav1.Object](indexer cache.Indexer, value string) []T {
	found, err := indexer.ByIndex(ownerIndex, value)
	if err != nil {
		return nil // Index was not called: the loop was not made by its New
	}
	out := make([]T, 0, len(found))
	for _, obj := range found {
		if t, ok := obj.(T); ok {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out
}

// Claims holds an owner's objects, and the actions that adopt and release objects.
type Claims[T controller.Object] struct {
	Owned   []T
	Actions []controller.Action
}

// parallelClaims is how many objects are adopted or released at a time.
const parallelClaims = 10

// Claim returns an owner's objects: those that it controls and that match its selector. Orphans that match are adopted; objects that it
// controls and that no longer match are released. An owner that is being deleted does neither.
//
// kind is the owner's kind; canAdopt asks the API whether the owner still exists, as the garbage collector would delete what a deleted owner
// adopted. finalizers are added to adopted objects and removed from released ones.
func Claim[T controller.Object](indexer cache.Indexer, owner controller.Object, kind schema.GroupVersionKind, selector labels.Selector,
	canAdopt controller.Action, finalizers ...string) Claims[T] {
	return ClaimMembers(indexer, owner, kind, selector, func(T) bool { return true }, canAdopt, finalizers...)
}

// ClaimMembers is Claim for an owner whose objects must also be members by something other than their labels.
func ClaimMembers[T controller.Object](indexer cache.Indexer, owner controller.Object, kind schema.GroupVersionKind, selector labels.Selector,
	member func(T) bool, canAdopt controller.Action, finalizers ...string) Claims[T] {
	var c Claims[T]
	var release, adopt []controller.Action
	for _, obj := range By[T](indexer, owner.GetUID()) {
		if selector.Matches(labels.Set(obj.GetLabels())) && member(obj) {
			c.Owned = append(c.Owned, obj)
		} else {
			release = append(release, Release(obj, owner.GetUID(), finalizers...))
		}
	}
	if owner.GetDeletionTimestamp() != nil {
		return c
	}
	for _, obj := range Orphans[T](indexer, owner.GetNamespace(), selector) {
		if obj.GetDeletionTimestamp() == nil && member(obj) {
			adopt = append(adopt, Adopt(obj, metav1.NewControllerRef(owner, kind), finalizers...))
		}
	}
	if len(release) > 0 {
		c.Actions = append(c.Actions, controller.Parallel(parallelClaims, release...))
	}
	if len(adopt) > 0 {
		c.Actions = append(c.Actions, canAdopt, controller.Parallel(parallelClaims, adopt...))
	}
	return c
}

// CanAdopt returns an action that fails unless the owner still exists with the same uid and is not being deleted; get reads it from the API.
func CanAdopt(owner controller.Object, get func(context.Context, *client.Client) (metav1.Object, error)) controller.Action {
	key, uid := controller.KeyOf(owner), owner.GetUID()
	return controller.Call("check that "+key.String()+" is still there", func(ctx context.Context, c *client.Client) error {
		fresh, err := get(ctx, c)
		switch {
		case err != nil:
			return fmt.Errorf("can't adopt: %w", err)
		case fresh.GetUID() != uid:
			return fmt.Errorf("can't adopt: original %s is gone: got uid %v, wanted %v", key, fresh.GetUID(), uid)
		case fresh.GetDeletionTimestamp() != nil:
			return fmt.Errorf("can't adopt: %s has just been deleted at %v", key, fresh.GetDeletionTimestamp())
		}
		return nil
	})
}

// Adopt returns the patch that makes owner the controller of an object. It names the object's uid, so that no other object of that name is adopted.
func Adopt(obj controller.Object, owner *metav1.OwnerReference, finalizers ...string) controller.Action {
	meta := map[string]any{"ownerReferences": []*metav1.OwnerReference{owner}, "uid": obj.GetUID()}
	if len(finalizers) > 0 {
		meta["finalizers"] = finalizers
	}
	return patch(obj, meta)
}

// Release returns the patch that removes an owner from an object's owner references.
func Release(obj controller.Object, owner types.UID, finalizers ...string) controller.Action {
	meta := map[string]any{"ownerReferences": []map[string]any{{"$patch": "delete", "uid": owner}}, "uid": obj.GetUID()}
	if len(finalizers) > 0 {
		meta["$deleteFromPrimitiveList/finalizers"] = finalizers
	}
	return patch(obj, meta)
}

func patch(obj controller.Object, meta map[string]any) controller.Action {
	data, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		panic(fmt.Sprintf("failed to encode owner patch: %v", err))
	}
	return controller.Patch(obj, "", types.StrategicMergePatchType, data)
}
