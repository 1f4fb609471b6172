// Package resourcequota holds a namespace to its quotas: a write that would use more than they allow is refused, and what a write uses
// is charged to them, in their status, before it happens. Nothing is given back if the write fails later: the quota controller counts
// afresh from time to time.
//
// A quota is charged with a compare-and-swap, so that it is never exceeded, whoever else writes. Writes that come while one is under
// way wait together and are then charged in one go.
package resourcequota

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/followed"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
	"skiff/internal/quota"
)

// New returns the plugin.
func New(s objects.Store) admission.Plugin {
	return &plugin{objects: s, evaluators: quota.New(cluster(s)), waiting: lines{of: map[string]*line{}},
		quotas: followed.ByNamespace(s, resourceQuotas, func(q *corev1.ResourceQuota) *corev1.ResourceQuota { return q })}
}

type plugin struct {
	objects    objects.Store
	evaluators *quota.Evaluators
	quotas     *followed.Namespaced[*corev1.ResourceQuota]
	waiting    lines
}

var (
	pods           = corev1.Resource("pods")
	namespaces     = corev1.Resource("namespaces")
	resourceQuotas = corev1.Resource("resourcequotas")
	deviceClasses  = resourcev1.Resource("deviceclasses")
	resourceClaims = resourcev1.Resource("resourceclaims")
)

// cluster tells evaluators about the cluster, from the caches.
func cluster(r objects.Reader) quota.Cluster {
	classes := &quota.DeviceClasses{}
	r.Follow(deviceClasses, func(before, after catalog.Object) {
		was, _ := before.(*resourcev1.DeviceClass)
		is, _ := after.(*resourcev1.DeviceClass)
		classes.Changed(was, is)
	})
	return quota.Cluster{
		Now: time.Now,
		Pod: func(namespace, name string) *corev1.Pod {
			pod, _ := r.Get(pods, namespace, name).(*corev1.Pod)
			return pod
		},
		Claims: func(namespace string) []*resourcev1.ResourceClaim {
			var claims []*resourcev1.ResourceClaim
			for _, obj := range r.List(resourceClaims, namespace) {
				if claim, ok := obj.(*resourcev1.ResourceClaim); ok {
					claims = append(claims, claim)
				}
			}
			return claims
		},
		Classes: classes,
	}
}

func (*plugin) Name() string { return "ResourceQuota" }

// Handles writes in namespaces that have quotas.
func (p *plugin) Handles(a *admission.Attributes) bool {
	return a.Namespace != "" && (a.Operation == admission.Create || a.Operation == admission.Update) && len(p.quotas.In(a.Namespace)) > 0 &&
		!a.Info.Virtual && !quota.Ignored(a.Info.GVR.GroupResource()) && !a.Is(namespaces)
}

// Validate charges a write to all quotas that concern it, or refuses it.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	r := &request{a: a, evaluator: p.evaluators.For(a.Info.GVR.GroupResource()), err: errUnserved, turn: make(chan bool, 1)}
	if !r.evaluator.Charges(quota.Write{Create: a.Operation == admission.Create, Subresource: a.Subresource, Object: a.Object, Old: a.Old}) {
		return nil
	}
	for _, q := range p.quotas.In(a.Namespace) {
		// What the cache has against a write only the newest state may say.
		if charge, err := r.charge(q); err != nil || len(charge) > 0 {
			r.quotas = append(r.quotas, q.Name)
		}
	}
	if len(r.quotas) == 0 {
		return nil
	}
	return p.waiting.join(ctx, a.Namespace, r, p.serve)
}
