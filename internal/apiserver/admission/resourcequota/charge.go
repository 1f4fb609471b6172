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

// chargeTimeout is how long a write waits until it is charged, and how long charging a batch may take.
const chargeTimeout = 10 * time.Second

var (
	errTimedOut = apierrors.NewInternalError(errors.New("resource quota evaluation timed out"))
	errNoCharge = errors.New("there is nothing to charge")
)

// chargeBatch charges the requests of one namespace, in order, and sets the err of each.
func (p *plugin) chargeBatch(ctx context.Context, namespace string, batch []*request) {
	// The batch belongs to several requests: it continues if the client of the one that charges it disconnects.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), chargeTimeout)
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

// preview refuses the requests that do not fit into all of several quotas, before any of the quotas is charged for them, and returns the
// others.
func (p *plugin) preview(ctx context.Context, namespace string, names []string, batch []*request) []*request {
	var running []*corev1.ResourceQuota // the quotas with the requests so far charged
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
			return refuse(batch, func(r *request) error { return r.ifConcerned(name, err) })
		}
		running = append(running, q.DeepCopy())
	}
	return refuse(batch, func(r *request) error { return r.chargeAll(running) })
}

// chargeAll charges the request to all quotas or to none.
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

// apply adds a charge to a quota's status and reports whether that changed it. Dry runs are checked like other writes but not charged.
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

// charge charges the batch to one quota, refuses the requests that exceed it and returns the others.
func (p *plugin) charge(ctx context.Context, namespace, name string, batch []*request) []*request {
	refusals := make(map[*request]error, len(batch))
	err := p.objects.Update(ctx, resourceQuotas, "status", namespace, name, func(obj catalog.Object) error {
		clear(refusals) // of an earlier attempt that ended in a conflict
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
	case apierrors.IsNotFound(err): // a deleted quota limits nothing
		return batch
	case err == nil || errors.Is(err, errNoCharge):
		return refuse(batch, func(r *request) error { return refusals[r] })
	default:
		return refuse(batch, func(r *request) error {
			if refusals[r] != nil {
				return refusals[r]
			}
			return r.ifConcerned(name, err)
		})
	}
}

// ifConcerned returns the error if the named quota concerns the request, else nil.
func (r *request) ifConcerned(name string, err error) error {
	if slices.Contains(r.quotas, name) {
		return err
	}
	return nil
}

// refuse sets the err of the requests for which refusal returns one, and returns the others.
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
