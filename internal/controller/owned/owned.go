// Package owned finds what an object controls, and whose objects without an owner are to become: what the loops of workloads share about
// owner references. It is pure but for the caches it reads.
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

// index is the name of the index, which all loops share.
const index = "owned.controller"

// Index has an informer keep its objects by who controls them. Any number of loops may ask for it.
func Index(informer cache.SharedIndexInformer) {
	if _, there := informer.GetIndexer().GetIndexers()[index]; there {
		return
	}
	err := informer.AddIndexers(cache.Indexers{index: func(obj any) ([]string, error) {
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
		panic(fmt.Sprintf("indexing by owner: %v", err)) // only if somebody else uses the name
	}
}

// orphans is the index value of a namespace's objects that nobody controls and that have a label. No uid has a slash.
func orphans(namespace, label string) string { return "orphans/" + namespace + "/" + label }

// By returns the objects that the owner controls, in the order of their names.
func By[T metav1.Object](indexer cache.Indexer, owner types.UID) []T {
	return list[T](indexer, string(owner))
}

// Orphans returns the objects of a namespace that nobody controls and that a selector selects.
func Orphans[T metav1.Object](indexer cache.Indexer, namespace string, selector labels.Selector) []T {
	found := list[T](indexer, orphans(namespace, required(selector)))
	return slices.DeleteFunc(found, func(obj T) bool { return !selector.Matches(labels.Set(obj.GetLabels())) })
}

// list is in order, so that what is decided does not depend on the order of a map.
func list[T metav1.Object](indexer cache.Indexer, value string) []T {
	found, err := indexer.ByIndex(index, value)
	if err != nil {
		return nil // the index is there, or the loop has not been made by New
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

// Claims are an owner's objects, and what to do about those that should become its or no longer be.
type Claims[T controller.Object] struct {
	Owned   []T
	Actions []controller.Action
}

// atATime is how many objects are adopted or let go at a time.
const atATime = 10

// Claim finds an owner's objects: those that it controls and selects, and those that nobody controls, which it adopts if it selects them. Those
// that it controls but no longer selects it lets go. An owner that is being deleted does neither.
//
// kind is the owner's kind; alive asks the API whether the owner is still there, as adopting by an owner that is gone would have the
// garbage collector delete what it adopted. finalizers are what adopted objects get besides, and lose when they are let go.
func Claim[T controller.Object](indexer cache.Indexer, owner controller.Object, kind schema.GroupVersionKind, selector labels.Selector,
	alive controller.Action, finalizers ...string) Claims[T] {
	var c Claims[T]
	var release, adopt []controller.Action
	for _, obj := range By[T](indexer, owner.GetUID()) {
		if selector.Matches(labels.Set(obj.GetLabels())) {
			c.Owned = append(c.Owned, obj)
		} else {
			release = append(release, Release(obj, owner.GetUID(), finalizers...))
		}
	}
	if owner.GetDeletionTimestamp() != nil {
		return c
	}
	for _, obj := range Orphans[T](indexer, owner.GetNamespace(), selector) {
		if obj.GetDeletionTimestamp() == nil {
			adopt = append(adopt, Adopt(obj, metav1.NewControllerRef(owner, kind), finalizers...))
		}
	}
	if len(release) > 0 {
		c.Actions = append(c.Actions, controller.Together(atATime, release...))
	}
	if len(adopt) > 0 {
		c.Actions = append(c.Actions, alive, controller.Together(atATime, adopt...))
	}
	return c
}

// Alive makes an action that fails unless an owner is still there, the same and not being deleted; get asks the API for it.
func Alive(owner controller.Object, get func(context.Context, *client.Client) (metav1.Object, error)) controller.Action {
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

// Adopt makes an object the owner's. The patch names the object's uid, so that no other object of that name is adopted.
func Adopt(obj controller.Object, owner *metav1.OwnerReference, finalizers ...string) controller.Action {
	meta := map[string]any{"ownerReferences": []*metav1.OwnerReference{owner}, "uid": obj.GetUID()}
	if len(finalizers) > 0 {
		meta["finalizers"] = finalizers
	}
	return patch(obj, meta)
}

// Release has an object no longer be the owner's.
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
		panic(fmt.Sprintf("encoding a patch of strings: %v", err))
	}
	return controller.Patch(obj, "", types.StrategicMergePatchType, data)
}
