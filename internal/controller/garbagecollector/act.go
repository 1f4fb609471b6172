package garbagecollector

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"skiff/internal/client"
	"skiff/internal/controller"
)

const (
	orphansAtATime   = 20 // how many dependents forget their owner at once
	questionsAtATime = 4  // how many names of an owner are looked into at once
	deleteTries      = 5  // how many versions of an object that changes all the time are tried in a row
)

// actions are what a plan does to its object.
func (p plan) actions() []controller.Action {
	var out []controller.Action
	if len(p.release) > 0 || p.delete != "" {
		for _, ref := range p.strangers {
			out = append(out, controller.Event(p.object.reference(), corev1.EventTypeWarning, "OwnerRefInvalidNamespace", "%s", unownedMessage(p.object.meta.Namespace, ref)))
		}
	}
	switch {
	case len(p.release) > 0:
		out = append(out, p.object.forget(p.release...))
	case p.delete != "":
		out = append(out, p.object.delete(p.delete))
	case p.finish != "":
		var orphans []controller.Action
		for _, orphan := range p.orphans {
			orphans = append(orphans, orphan.forget(p.about))
		}
		if len(orphans) > 0 {
			out = append(out, controller.Parallel(orphansAtATime, orphans...))
		}
		out = append(out, p.object.finish(p.finish))
	}
	return out
}

// questions are what a plan asks the server. served finds kinds, told is told the answers. One that cannot be answered does not keep the
// others from it.
func (p plan) questions(served func(kindName) *kind, told func(types.UID, name, answer)) []controller.Action {
	var out []controller.Action
	for _, by := range p.ask {
		out = append(out, ask(p.about, by, served, told))
	}
	if len(out) == 0 {
		return nil
	}
	return []controller.Action{controller.Parallel(questionsAtATime, out...)}
}

// reference is the object as events refer to it.
func (o object) reference() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: o.kind.apiVersion, Kind: o.kind.kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.meta.Namespace, Name: o.meta.Name, UID: o.meta.UID}}
}

// api is where the object is written to.
func (o object) api(c *client.Client) metadata.ResourceInterface {
	return c.Metadata().Resource(o.kind.resource).Namespace(o.meta.Namespace)
}

// ask asks the server whether there is an object of a name and uid.
func ask(uid types.UID, by name, served func(kindName) *kind, told func(types.UID, name, answer)) controller.Action {
	return controller.Call(fmt.Sprintf("ask about %s", by), func(ctx context.Context, c *client.Client) error {
		k := served(by.kindName)
		if k == nil {
			return fmt.Errorf("unable to get REST mapping for %s/%s", by.apiVersion, by.kind)
		}
		namespace := by.namespace
		if !k.namespaced {
			namespace = ""
		}
		found, err := c.Metadata().Resource(k.resource).Namespace(namespace).Get(ctx, by.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && found.UID != uid:
			told(uid, by, absent)
		case err != nil:
			return err
		case isWaiting(found):
			told(uid, by, waiting)
		default:
			told(uid, by, solid)
		}
		return nil
	})
}

// String is the name as people write it.
func (n name) String() string {
	if n.namespace == "" {
		return n.apiVersion + " " + n.kind + " " + n.name
	}
	return n.apiVersion + " " + n.kind + " " + n.namespace + "/" + n.name
}

// delete deletes the object in the version that was decided on: in another one its owners may be others, or somebody may have deleted it in
// another way. Versions that differ in other things are as good.
func (o object) delete(policy metav1.DeletionPropagation) controller.Action {
	return controller.Call(fmt.Sprintf("delete %s, %s", o, policy), func(ctx context.Context, c *client.Client) error {
		seen := o.meta
		for range deleteTries {
			err := o.api(c).Delete(ctx, seen.Name, metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &seen.UID, ResourceVersion: &seen.ResourceVersion}})
			if !apierrors.IsConflict(err) {
				return ignoreGone(err)
			}
			if seen, err = o.api(c).Get(ctx, o.meta.Name, metav1.GetOptions{}); err != nil {
				return ignoreGone(err)
			}
			if seen.UID != o.meta.UID || seen.DeletionTimestamp != nil {
				return nil
			}
			if !sameOwners(seen.OwnerReferences, o.meta.OwnerReferences) || !slices.Equal(seen.Finalizers, o.meta.Finalizers) {
				break
			}
		}
		return fmt.Errorf("%s has changed", o)
	})
}

// finish takes a finalizer away from the object.
func (o object) finish(finalizer string) controller.Action {
	return controller.Call(fmt.Sprintf("remove finalizer %s from %s", finalizer, o), func(ctx context.Context, c *client.Client) error {
		left := slices.DeleteFunc(slices.Clone(o.meta.Finalizers), func(f string) bool { return f == finalizer })
		return o.patch(ctx, c, types.MergePatchType, map[string]any{"resourceVersion": o.meta.ResourceVersion, "finalizers": left})
	})
}

// forget has the object forget owners.
func (o object) forget(owners ...types.UID) controller.Action {
	return controller.Call(fmt.Sprintf("remove owners %v from %s", owners, o), func(ctx context.Context, c *client.Client) error {
		var removals []map[string]any
		for _, uid := range owners {
			removals = append(removals, map[string]any{"$patch": "delete", "uid": uid})
		}
		err := o.patch(ctx, c, types.StrategicMergePatchType, map[string]any{"uid": o.meta.UID, "ownerReferences": removals})
		if !apierrors.IsUnsupportedMediaType(err) {
			return err
		}
		// Custom resources take no strategic patches: the whole list is written, in the version that was seen.
		left := slices.DeleteFunc(slices.Clone(o.meta.OwnerReferences), func(ref metav1.OwnerReference) bool { return slices.Contains(owners, ref.UID) })
		return o.patch(ctx, c, types.MergePatchType, map[string]any{"uid": o.meta.UID, "resourceVersion": o.meta.ResourceVersion, "ownerReferences": left})
	})
}

func (o object) patch(ctx context.Context, c *client.Client, as types.PatchType, meta map[string]any) error {
	data, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	_, err = o.api(c).Patch(ctx, o.meta.Name, as, data, metav1.PatchOptions{})
	return ignoreGone(err)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
