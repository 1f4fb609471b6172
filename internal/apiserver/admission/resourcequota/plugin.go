package resourcequota

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/lister"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
	"skiff/internal/quota"
)

// New returns the plugin.
func New(s objects.Store) admission.Plugin {
	return &plugin{objects: s, evaluators: quota.New(cluster(s)), queues: queues{byNamespace: map[string]*queue{}},
		quotas: lister.ByNamespace(s, resourceQuotas, func(q *corev1.ResourceQuota) *corev1.ResourceQuota { return q })}
}

type plugin struct {
	objects    objects.Store
	evaluators *quota.Evaluators
	quotas     *lister.Namespaced[*corev1.ResourceQuota]
	queues     queues
}

var (
	pods           = corev1.Resource("pods")
	namespaces     = corev1.Resource("namespaces")
	resourceQuotas = corev1.Resource("resourcequotas")
	deviceClasses  = resourcev1.Resource("deviceclasses")
	resourceClaims = resourcev1.Resource("resourceclaims")
)

// cluster returns what evaluators read of the cluster, from the API server's caches.
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

// Handles reports whether the write creates or updates a stored object in a namespace that has quotas.
func (p *plugin) Handles(a *admission.Attributes) bool {
	return a.Namespace != "" && (a.Operation == admission.Create || a.Operation == admission.Update) && len(p.quotas.List(a.Namespace)) > 0 &&
		!a.Info.Virtual && !quota.Ignored(a.Info.GVR.GroupResource()) && !a.Is(namespaces)
}

// Validate charges the write to all quotas that concern it, or refuses it.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	r := &request{a: a, evaluator: p.evaluators.For(a.Info.GVR.GroupResource()), err: errTimedOut, turn: make(chan bool, 1)}
	if !r.evaluator.Charges(quota.Write{Create: a.Creates(), Subresource: a.Subresource, Object: a.Object, Old: a.Old}) {
		return nil
	}
	for _, q := range p.quotas.List(a.Namespace) {
		// A cached quota may be outdated: it only decides whether the quota concerns the write, the stored one whether the write fits.
		if charge, err := r.charge(q); err != nil || len(charge) > 0 {
			r.quotas = append(r.quotas, q.Name)
		}
	}
	if len(r.quotas) == 0 {
		return nil
	}
	return p.queues.charge(ctx, a.Namespace, r, p.chargeBatch)
}
