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
	orphansAtATime   = 20 // how many dependents are orphaned at a time
	questionsAtATime = 4  // how many names of an owner are verified at a time
	deleteTries      = 5  // how often deleting an object that changes meanwhile is tried in a row
)

// actions returns the writes of a plan.
func (p plan) actions() []controller.Action {
	var out []controller.Action
	if len(p.release) > 0 || p.delete != "" {
		for _, ref := range p.foreignOwners {
			out = append(out, controller.Event(p.object.reference(), corev1.EventTypeWarning, "OwnerRefInvalidNamespace", "%s", unownedMessage(p.object.meta.Namespace, ref)))
		}
	}
	switch {
	case len(p.release) > 0:
		out = append(out, p.object.removeOwners(p.release...))
	case p.delete != "":
		out = append(out, p.object.delete(p.delete))
	case p.finish != "":
		var orphans []controller.Action
		for _, orphan := range p.orphans {
			orphans = append(orphans, orphan.removeOwners(p.about))
		}
		if len(orphans) > 0 {
			out = append(out, controller.Parallel(orphansAtATime, orphans...))
		}
		out = append(out, p.object.removeFinalizer(p.finish))
	}
	return out
}

// questions returns the reads of a plan: each asks the API server about a name of the node. served finds kinds, record notes the answers. A
// question that fails does not keep the others from being asked.
func (p plan) questions(served func(kindName) *kind, record func(types.UID, name, answer)) []controller.Action {
	var out []controller.Action
	for _, by := range p.ask {
		out = append(out, ask(p.about, by, served, record))
	}
	if len(out) == 0 {
		return nil
	}
	return []controller.Action{controller.Parallel(questionsAtATime, out...)}
}

// reference returns the object as Events refer to it.
func (o object) reference() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: o.kind.apiVersion, Kind: o.kind.kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.meta.Namespace, Name: o.meta.Name, UID: o.meta.UID}}
}

// api returns the client of the object's resource.
func (o object) api(c *client.Client) metadata.ResourceInterface {
	return c.Metadata().Resource(o.kind.resource).Namespace(o.meta.Namespace)
}

// ask asks the API server whether an object with a name and uid exists.
func ask(uid types.UID, by name, served func(kindName) *kind, record func(types.UID, name, answer)) controller.Action {
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
			record(uid, by, absent)
		case err != nil:
			return err
		case isWaiting(found):
			record(uid, by, waiting)
		default:
			record(uid, by, solid)
		}
		return nil
	})
}

// String returns the name for messages.
func (n name) String() string {
	if n.namespace == "" {
		return n.apiVersion + " " + n.kind + " " + n.name
	}
	return n.apiVersion + " " + n.kind + " " + n.namespace + "/" + n.name
}

// delete deletes the object in the version that was decided on: in a later one its owners may differ, or it may be deleted with another
// propagation policy. Later versions that differ only in other fields are deleted too.
func (o object) delete(policy metav1.DeletionPropagation) controller.Action {
	return controller.Call(fmt.Sprintf("delete %s, %s", o, policy), func(ctx context.Context, c *client.Client) error {
		current := o.meta
		for range deleteTries {
			err := o.api(c).Delete(ctx, current.Name, metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &current.UID, ResourceVersion: &current.ResourceVersion}})
			if !apierrors.IsConflict(err) {
				return ignoreNotFound(err)
			}
			if current, err = o.api(c).Get(ctx, o.meta.Name, metav1.GetOptions{}); err != nil {
				return ignoreNotFound(err)
			}
			if current.UID != o.meta.UID || current.DeletionTimestamp != nil {
				return nil
			}
			if !sameOwners(current.OwnerReferences, o.meta.OwnerReferences) || !slices.Equal(current.Finalizers, o.meta.Finalizers) {
				break
			}
		}
		return fmt.Errorf("%s has changed since it was decided to delete it", o)
	})
}

// removeFinalizer removes a finalizer from the object.
func (o object) removeFinalizer(finalizer string) controller.Action {
	return controller.Call(fmt.Sprintf("remove finalizer %s from %s", finalizer, o), func(ctx context.Context, c *client.Client) error {
		left := slices.DeleteFunc(slices.Clone(o.meta.Finalizers), func(f string) bool { return f == finalizer })
		return o.patch(ctx, c, types.MergePatchType, map[string]any{"resourceVersion": o.meta.ResourceVersion, "finalizers": left})
	})
}

// removeOwners removes owners from the object's owner references.
func (o object) removeOwners(owners ...types.UID) controller.Action {
	return controller.Call(fmt.Sprintf("remove owners %v from %s", owners, o), func(ctx context.Context, c *client.Client) error {
		var removals []map[string]any
		for _, uid := range owners {
			removals = append(removals, map[string]any{"$patch": "delete", "uid": uid})
		}
		err := o.patch(ctx, c, types.StrategicMergePatchType, map[string]any{"uid": o.meta.UID, "ownerReferences": removals})
		if !apierrors.IsUnsupportedMediaType(err) {
			return err
		}
		// Custom resources accept no strategic merge patches: the whole list is written, in the observed version.
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
	return ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
