package resourcequota

import (
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/controller"
	"skiff/internal/quota"
)

const (
	// workers is upstream's number: the sum of its workers for new and for known quotas.
	workers = 10
	// recount is how often every quota is counted even without changes.
	recount = 5 * time.Minute
	// recountSoon is when a quota whose status has changed is counted again. Admission charges a quota before the object is stored: a count in
	// between is too low.
	recountSoon = 5 * time.Second
	// yieldTime is how long a known quota waits for new ones to be counted first, maxYield how long at most after a new one was observed.
	yieldTime = 20 * time.Millisecond
	maxYield  = time.Second
)

// New returns the loop. Its keys are ResourceQuotas.
func New(deps controller.Deps) controller.Loop {
	core, devices := deps.Informers.Core().V1(), deps.Informers.Resource().V1()
	l := &loop{
		quotas: core.ResourceQuotas().Lister(), pods: core.Pods().Lister(), claims: devices.ResourceClaims().Lister(), unenforced: map[controller.Key]time.Time{},
		typed: map[schema.GroupResource]cache.Indexer{
			corev1.Resource("pods"): core.Pods().Informer().GetIndexer(), corev1.Resource("services"): core.Services().Informer().GetIndexer(),
			corev1.Resource("persistentvolumeclaims"): core.PersistentVolumeClaims().Informer().GetIndexer(),
			corev1.Resource("resourcequotas"):         core.ResourceQuotas().Informer().GetIndexer(),
			resourcev1.Resource("resourceclaims"):     devices.ResourceClaims().Informer().GetIndexer(),
		},
	}
	l.counters = newCounters(deps.Client, l.wantedResources)
	quotaDeleted := l.freed(corev1.Resource("resourcequotas"))
	return controller.Loop{
		Name: "resourcequota-controller", QueueName: "resourcequota_primary", Workers: workers,
		Watch: []controller.Watch{
			{Informer: core.ResourceQuotas().Informer(), Type: &corev1.ResourceQuota{}, Keys: func(before, after metav1.Object) []controller.Key {
				if after == nil {
					return quotaDeleted(before, nil)
				}
				return l.quotaChanged(before, after)
			}},
			{Informer: core.Pods().Informer(), Type: &corev1.Pod{}, Keys: l.freed(corev1.Resource("pods"))},
			{Informer: core.Services().Informer(), Type: &corev1.Service{}, Keys: l.freed(corev1.Resource("services"))},
			{Informer: core.PersistentVolumeClaims().Informer(), Type: &corev1.PersistentVolumeClaim{}, Keys: l.freed(corev1.Resource("persistentvolumeclaims"))},
			{Informer: devices.ResourceClaims().Informer(), Type: &resourcev1.ResourceClaim{}, Keys: l.freed(resourcev1.Resource("resourceclaims"))},
			{Informer: devices.DeviceClasses().Informer(), Type: &resourcev1.DeviceClass{}, Keys: l.classChanged},
			{Informer: l.counters, Keys: l.counted},
		},
		Reconcile: l.reconcile,
		Run:       l.counters.run,
	}
}

type loop struct {
	quotas   corelisters.ResourceQuotaLister
	pods     corelisters.PodLister
	claims   resourcelisters.ResourceClaimLister
	classes  quota.DeviceClasses
	typed    map[schema.GroupResource]cache.Indexer // resources whose objects have to be read to be measured
	counters *counters                              // resources whose objects need only be counted

	mu         sync.Mutex
	unenforced map[controller.Key]time.Time // quotas that are not enforced yet, by when they were observed; they are counted first
}

// quotaChanged returns a quota if it is new or its limits have changed. Changes of status are made by this loop and by admission.
func (l *loop) quotaChanged(before, after metav1.Object) []controller.Key {
	is, _ := after.(*corev1.ResourceQuota)
	was, _ := before.(*corev1.ResourceQuota)
	if was != nil && was != is && quota.Equal(was.Spec.Hard, is.Spec.Hard) {
		return nil
	}
	key := controller.KeyOf(is)
	if !enforced(is) {
		l.mu.Lock()
		l.unenforced[key] = time.Now()
		l.mu.Unlock()
	}
	return []controller.Key{key}
}

// enforced reports whether a quota's status has all that admission needs.
func enforced(q *corev1.ResourceQuota) bool {
	if !equality.Semantic.DeepEqual(q.Spec.Hard, q.Status.Hard) {
		return false
	}
	for name := range q.Status.Hard {
		if _, ok := q.Status.Used[name]; !ok {
			return false
		}
	}
	return true
}

// freed returns a Watch.Keys: the quotas to count again because an object of a resource was deleted or uses less.
func (l *loop) freed(resource schema.GroupResource) func(before, after metav1.Object) []controller.Key {
	evaluator := l.evaluators(time.Now).For(resource)
	return func(before, after metav1.Object) []controller.Key {
		if before == nil || before == after {
			return nil // admission has charged for new objects
		}
		quotas, err := l.quotas.ResourceQuotas(before.GetNamespace()).List(labels.Everything())
		if err != nil || len(quotas) == 0 {
			return nil
		}
		if after != nil {
			was, ok := before.(quota.Object)
			is, also := after.(quota.Object)
			if !ok || !also || !evaluator.Frees(is, was) {
				return nil
			}
		}
		var keys []controller.Key
		for _, q := range quotas {
			if len(quota.Limited(evaluator, q.Status.Hard)) > 0 {
				keys = append(keys, controller.KeyOf(q))
			}
		}
		return keys
	}
}

// classChanged notes which extended resources device classes offer. No quota has to be counted again at once.
func (l *loop) classChanged(before, after metav1.Object) []controller.Key {
	was, _ := before.(*resourcev1.DeviceClass)
	is, _ := after.(*resourcev1.DeviceClass)
	l.classes.Changed(was, is)
	return nil
}

// counted returns the quotas to count again when an object that is only counted was deleted, or its counter has synced.
func (l *loop) counted(before, after metav1.Object) []controller.Key {
	if synced, ok := after.(*counterSynced); ok {
		var keys []controller.Key
		quotas, err := l.quotas.List(labels.Everything())
		if err != nil {
			return nil
		}
		for _, q := range quotas {
			if limits(q, synced.resource) {
				keys = append(keys, controller.KeyOf(q))
			}
		}
		return keys
	}
	if after != nil {
		return nil
	}
	if deleted, ok := before.(*countedDeleted); ok {
		return l.freed(deleted.resource)(deleted, nil)
	}
	return nil
}

// wantedResources returns the resources that quotas count and that need a counter.
func (l *loop) wantedResources() map[schema.GroupResource]bool {
	out := map[schema.GroupResource]bool{}
	quotas, err := l.quotas.List(labels.Everything())
	if err != nil {
		return nil
	}
	for _, q := range quotas {
		for _, resource := range l.countersFor(q) {
			out[resource] = true
		}
	}
	return out
}

// countersFor returns the resources that a quota counts and that need a counter.
func (l *loop) countersFor(q *corev1.ResourceQuota) []schema.GroupResource {
	var out []schema.GroupResource
	for name := range q.Spec.Hard {
		var resource schema.GroupResource
		if of, ok := strings.CutPrefix(string(name), "count/"); ok {
			resource = schema.ParseGroupResource(of)
		} else {
			switch name {
			case corev1.ResourceConfigMaps, corev1.ResourceReplicationControllers, corev1.ResourceSecrets:
				resource = corev1.Resource(string(name))
			default:
				continue
			}
		}
		if l.typed[resource] == nil && !quota.Ignored(resource) {
			out = append(out, resource)
		}
	}
	return out
}

func limits(q *corev1.ResourceQuota, resource schema.GroupResource) bool {
	for name := range q.Spec.Hard {
		if name == quota.CountName(resource) || resource.Group == "" && string(name) == resource.Resource {
			return true
		}
	}
	return false
}

func (l *loop) evaluators(now func() time.Time) *quota.Evaluators {
	return quota.New(quota.Cluster{Now: now, Classes: &l.classes,
		Pod: func(namespace, name string) *corev1.Pod {
			pod, err := l.pods.Pods(namespace).Get(name)
			if err != nil {
				return nil
			}
			return pod
		},
		Claims: func(namespace string) []*resourcev1.ResourceClaim {
			claims, err := l.claims.ResourceClaims(namespace).List(labels.Everything())
			if err != nil {
				return nil
			}
			return claims
		}})
}

// reconcile measures what a quota's namespace uses.
func (l *loop) reconcile(key controller.Key, now time.Time) controller.Decision {
	if l.mustYield(key) {
		return controller.Decision{RequeueAfter: yieldTime}
	}
	q, err := l.quotas.ResourceQuotas(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return controller.Nothing
	}
	if err != nil {
		return controller.Decision{Err: err}
	}
	resources := l.countersFor(q)
	if wait := l.counters.ready(resources, now); wait > 0 {
		return controller.Decision{RequeueAfter: wait}
	}
	resources = l.counters.servedOnly(resources)
	for resource := range l.typed {
		resources = append(resources, resource)
	}
	used, err := l.evaluators(func() time.Time { return now }).Used(q, resources, func(resource schema.GroupResource) ([]quota.Object, error) {
		if indexer := l.typed[resource]; indexer != nil {
			return list(indexer, key.Namespace)
		}
		return l.counters.list(resource, key.Namespace)
	})
	return decide(q, used, err)
}

// mustYield reports whether a quota should wait until quotas that are not enforced yet have been counted. A quota that is not enforced does not wait.
func (l *loop) mustYield(key controller.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.unenforced[key]; ok {
		delete(l.unenforced, key)
		return false
	}
	for other, since := range l.unenforced {
		if time.Since(since) < maxYield {
			return true
		}
		delete(l.unenforced, other) // it waits for something else
	}
	return false
}

func list(indexer cache.Indexer, namespace string) ([]quota.Object, error) {
	found, err := indexer.ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return nil, err
	}
	out := make([]quota.Object, 0, len(found))
	for _, obj := range found {
		if o, ok := obj.(quota.Object); ok {
			out = append(out, o)
		}
	}
	return out, nil
}

// decide updates a quota's status with what was counted. A resource that could not be counted keeps its value; countErr says why.
func decide(q *corev1.ResourceQuota, counted corev1.ResourceList, countErr error) controller.Decision {
	used := corev1.ResourceList{}
	for name := range q.Spec.Hard {
		if value, ok := counted[name]; ok {
			used[name] = value
		} else if value, ok := q.Status.Used[name]; ok {
			used[name] = value.DeepCopy()
		}
	}
	if equality.Semantic.DeepEqual(q.Spec.Hard, q.Status.Hard) && q.Status.Hard != nil && q.Status.Used != nil && quota.Equal(used, q.Status.Used) {
		return controller.Decision{RequeueAfter: recount, Err: countErr}
	}
	next := q.DeepCopy()
	next.Status = corev1.ResourceQuotaStatus{Hard: next.Spec.DeepCopy().Hard, Used: used}
	return controller.Decision{Actions: []controller.Action{controller.UpdateStatus(next)}, RequeueAfter: recountSoon, Err: countErr}
}
