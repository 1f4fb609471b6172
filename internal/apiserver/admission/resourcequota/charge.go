package resourcequota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/catalog"
)

// patience is how long a write waits until it is charged, and how long charging may take.
const patience = 10 * time.Second

var (
	errUnserved = apierrors.NewInternalError(errors.New("resource quota evaluation timed out"))
	errNoCharge = errors.New("there is nothing to charge")
)

// serve charges requests of one namespace, in their order, and gives each its answer.
func (p *plugin) serve(ctx context.Context, namespace string, batch []*request) {
	// The batch is not only of the request that happens to serve it: it goes on if that one's client goes away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	var names []string
	for _, r := range batch {
		names = append(names, r.quotas...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > 1 {
		batch = p.preview(ctx, namespace, names, batch)
	}
	for _, name := range names {
		batch = p.charge(ctx, namespace, name, batch)
	}
	for _, r := range batch {
		r.err = nil
	}
}

// preview refuses requests that do not fit into all of several quotas, before the first of these is charged for nothing. It returns the
// others.
func (p *plugin) preview(ctx context.Context, namespace string, names []string, batch []*request) []*request {
	var running []*corev1.ResourceQuota // what the quotas will be once the requests so far are charged
	for _, name := range names {
		obj, err := p.objects.Fresh(ctx, resourceQuotas, namespace, name)
		if apierrors.IsNotFound(err) {
			continue
		}
		q, ok := obj.(*corev1.ResourceQuota)
		if err == nil && !ok {
			err = fmt.Errorf("unexpected type %T", obj)
		}
		if err != nil {
			return refuse(batch, func(r *request) error { return r.concerned(name, err) })
		}
		running = append(running, q.DeepCopy())
	}
	return refuse(batch, func(r *request) error { return r.chargeAll(running) })
}

// chargeAll charges all quotas or none.
func (r *request) chargeAll(quotas []*corev1.ResourceQuota) error {
	var concerned []*corev1.ResourceQuota
	for _, q := range quotas {
		limits, err := r.limits(q)
		if err != nil {
			return err
		}
		if limits {
			concerned = append(concerned, q)
		}
	}
	charges := make([]corev1.ResourceList, len(concerned))
	for i, q := range concerned {
		var err error
		if charges[i], err = r.fit(q); err != nil {
			return err
		}
	}
	for i, q := range concerned {
		r.apply(q, charges[i])
	}
	return nil
}

// apply adds a charge to a quota's status and reports whether that changed it. Dry runs are checked like others and charged nothing.
func (r *request) apply(q *corev1.ResourceQuota, charge corev1.ResourceList) bool {
	if r.a.DryRun || len(charge) == 0 {
		return false
	}
	for name, amount := range charge {
		used := q.Status.Used[name].DeepCopy()
		used.Add(amount)
		q.Status.Used[name] = used
	}
	return true
}

// charge charges one quota and returns the requests that it has nothing against.
func (p *plugin) charge(ctx context.Context, namespace, name string, batch []*request) []*request {
	refusals := make(map[*request]error, len(batch))
	err := p.objects.Update(ctx, resourceQuotas, "status", namespace, name, func(obj catalog.Object) error {
		clear(refusals) // of an attempt in which somebody else was faster
		q, ok := obj.(*corev1.ResourceQuota)
		if !ok {
			return fmt.Errorf("unexpected type %T", obj)
		}
		changed := false
		for _, r := range batch {
			charge, err := r.charge(q)
			if err != nil {
				refusals[r] = err
			} else {
				changed = r.apply(q, charge) || changed
			}
		}
		if !changed {
			return errNoCharge
		}
		return nil
	})
	switch {
	case apierrors.IsNotFound(err): // it limits nothing any more
		return batch
	case err == nil || errors.Is(err, errNoCharge):
		return refuse(batch, func(r *request) error { return refusals[r] })
	default:
		return refuse(batch, func(r *request) error {
			if refusals[r] != nil {
				return refusals[r]
			}
			return r.concerned(name, err)
		})
	}
}

// concerned returns the error if the quota concerns the request.
func (r *request) concerned(name string, err error) error {
	if slices.Contains(r.quotas, name) {
		return err
	}
	return nil
}

// refuse gives those requests their answer that are refused, and returns the others.
func refuse(batch []*request, refusal func(*request) error) []*request {
	rest := make([]*request, 0, len(batch))
	for _, r := range batch {
		if err := refusal(r); err != nil {
			r.err = err
		} else {
			rest = append(rest, r)
		}
	}
	return rest
}
