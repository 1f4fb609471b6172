package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"golang.org/x/sync/errgroup"

	"skiff/internal/apiserver/authz/rbac"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

const (
	parallelWrites = 32               // a store batches concurrent writes
	maxTries       = 4                // per object, when others create or delete it concurrently
	retryInterval  = time.Second      // after a failure of the store
	deadline       = 30 * time.Second // a server without roles is of no use
)

// Reconcile creates the default roles and bindings that are missing and adds what existing ones lack. What others have added stays. An object
// whose annotation rbac.authorization.kubernetes.io/autoupdate is "false" is not changed. If nothing is missing, nothing is written. The
// namespaces kube-system and kube-public must exist.
func Reconcile(ctx context.Context, store objects.Store, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	for {
		err := Default().reconcile(ctx, store, log)
		if err == nil {
			return nil
		}
		log.Warn("failed to reconcile the default roles and bindings", "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("unable to initialize roles: %w", err)
		case <-time.After(retryInterval):
		}
	}
}

// item is one object to reconcile.
type item struct {
	resource schema.GroupResource
	kind     string // for error texts
	want     catalog.Object
	initial  catalog.Object // created if the object does not exist
}

func (p Policy) items() []*item {
	var items []*item
	for _, r := range p.ClusterRoles {
		items = append(items, &item{rbac.ClusterRoles, "clusterrole", r, nil})
	}
	for _, b := range p.ClusterRoleBindings {
		items = append(items, &item{rbac.ClusterRoleBindings, "clusterrolebinding", b, nil})
	}
	for _, r := range p.Roles {
		items = append(items, &item{rbac.Roles, "role", r, nil})
	}
	for _, b := range p.RoleBindings {
		items = append(items, &item{rbac.RoleBindings, "rolebinding", b, nil})
	}
	return items
}

func (p Policy) reconcile(ctx context.Context, store objects.Store, log *slog.Logger) error {
	items := p.items()
	for _, it := range items { // before the first write, which may change the old roles that initial states are made from
		it.initial = it.initialState(store)
	}
	var group errgroup.Group
	group.SetLimit(parallelWrites)
	failures := make([]error, len(items))
	for i, it := range items {
		have := store.Get(it.resource, it.want.GetNamespace(), it.want.GetName())
		if have != nil && !it.differs(have, log) {
			continue
		}
		group.Go(func() error {
			if err := it.ensure(ctx, store, have, log); err != nil {
				failures[i] = fmt.Errorf("unable to reconcile %s: %w", it, err)
			}
			return nil // the others are still tried
		})
	}
	group.Wait()
	return utilerrors.NewAggregate(failures)
}

func (it *item) String() string {
	name := fmt.Sprintf("%s.%s/%s", it.kind, rbacv1.GroupName, it.want.GetName())
	if namespace := it.want.GetNamespace(); namespace != "" {
		name += " in " + namespace
	}
	return name
}

// initialState returns what a missing object is created as: want, or what an old version of Kubernetes had in its place, merged with want.
func (it *item) initialState(read objects.Reader) catalog.Object {
	if old := predecessor(it.want, read); old != nil {
		if !protected(old) {
			merge(it.want, old)
		}
		return old
	}
	return it.want
}

// differs reports whether an object lacks something of want and may be changed.
func (it *item) differs(have catalog.Object, log *slog.Logger) bool {
	if protected(have) {
		if lacks(it.want, have) {
			log.Warn("default role or binding is incomplete, but its annotation forbids to update it", "object", it.String(), "annotation", rbacv1.AutoUpdateAnnotationKey)
		}
		return false
	}
	return lacks(it.want, have)
}

func protected(obj catalog.Object) bool {
	return obj.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false"
}

// lacks reports whether merging would change an object. It does not change the object, which is shared.
func lacks(want, have catalog.Object) bool {
	return otherRole(want, have) || merge(want, have.DeepCopyObject().(catalog.Object))
}

// ensure creates or updates an object and retries on conflicts. have may be outdated, and is nil if the object does not exist.
func (it *item) ensure(ctx context.Context, store objects.Store, have catalog.Object, log *slog.Logger) error {
	for range maxTries {
		err := it.write(ctx, store, have)
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
		switch have, err = store.Fresh(ctx, it.resource, it.want.GetNamespace(), it.want.GetName()); {
		case apierrors.IsNotFound(err):
			have = nil
		case err != nil:
			return err
		case !it.differs(have, log):
			return nil
		}
	}
	return errors.New("exceeded maximum attempts")
}

func (it *item) write(ctx context.Context, store objects.Writer, have catalog.Object) error {
	namespace, name := it.want.GetNamespace(), it.want.GetName()
	switch {
	case have == nil:
		return create(ctx, store, it.resource, it.initial)
	case otherRole(it.want, have): // the role of a binding cannot be changed
		if err := store.Delete(ctx, it.resource, namespace, name, have.GetUID()); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return create(ctx, store, it.resource, it.want)
	}
	return store.Update(ctx, it.resource, "", namespace, name, func(obj catalog.Object) error {
		merge(it.want, obj)
		return nil
	})
}

// create creates a copy of obj, which may have to be created again.
func create(ctx context.Context, store objects.Writer, resource schema.GroupResource, obj catalog.Object) error {
	return store.Create(ctx, resource, obj.DeepCopyObject().(catalog.Object))
}
