package devicetainteviction

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"skiff/internal/controller"
)

const (
	name = "device-taint-eviction-controller"
	// byPool is the index of slices by the pool that they are of, and of claims by the pools that they have devices of.
	byPool = "devicetainteviction.pool"
)

// loop reads the caches. It remembers the evictions that are planned, to tell when one is cancelled, and how many pods each rule has evicted.
type loop struct {
	pods   corelisters.PodLister
	claims resourcelisters.ResourceClaimLister
	rules  resourcelisters.DeviceTaintRuleLister

	claimIndex, sliceIndex cache.Indexer

	mu      sync.Mutex
	planned map[controller.Key]types.UID // pods that are to be evicted
	evicted map[types.UID]int            // how many pods were evicted, by rule
}

// New returns the loop. Its keys are pods with claims, and DeviceTaintRules.
func New(deps controller.Deps) controller.Loop {
	l := newLoop(deps)
	resources := deps.Informers.Resource().V1()
	return controller.Loop{Name: name, QueueName: name, Reconcile: l.reconcile, Watch: []controller.Watch{
		{Informer: deps.Informers.Core().V1().Pods().Informer(), Type: &corev1.Pod{}, Keys: l.podKeys},
		{Informer: resources.ResourceClaims().Informer(), Keys: l.claimKeys},
		{Informer: resources.ResourceSlices().Informer(), Keys: l.sliceKeys},
		{Informer: resources.DeviceTaintRules().Informer(), Type: &resourcev1.DeviceTaintRule{}, Keys: l.ruleKeys},
	}}
}

func newLoop(deps controller.Deps) *loop {
	resources := deps.Informers.Resource().V1()
	claims, slices := resources.ResourceClaims(), resources.ResourceSlices()
	addIndexer(claims.Informer(), func(obj any) ([]string, error) {
		claim, ok := obj.(*resourcev1.ResourceClaim)
		if !ok || claim.Status.Allocation == nil {
			return nil, nil
		}
		return poolsOf(claim), nil
	})
	addIndexer(slices.Informer(), func(obj any) ([]string, error) {
		if slice, ok := obj.(*resourcev1.ResourceSlice); ok {
			return []string{poolOf(slice.Spec.Driver, slice.Spec.Pool.Name)}, nil
		}
		return nil, nil
	})
	return &loop{pods: deps.Informers.Core().V1().Pods().Lister(), claims: claims.Lister(), rules: resources.DeviceTaintRules().Lister(),
		claimIndex: claims.Informer().GetIndexer(), sliceIndex: slices.Informer().GetIndexer(),
		planned: map[controller.Key]types.UID{}, evicted: map[types.UID]int{}}
}

func addIndexer(informer cache.SharedIndexInformer, index cache.IndexFunc) {
	if informer.GetIndexer().GetIndexers()[byPool] != nil {
		return
	}
	if err := informer.AddIndexers(cache.Indexers{byPool: index}); err != nil {
		panic(fmt.Sprintf("indexing by pool: %v", err)) // only if the informer has stopped
	}
}

// poolOf returns the index value of a pool of devices.
func poolOf(driver, pool string) string { return driver + "/" + pool }

// poolsOf returns the pools that a claim has devices of.
func poolsOf(claim *resourcev1.ResourceClaim) (pools []string) {
	for _, device := range claim.Status.Allocation.Devices.Results {
		pools = append(pools, poolOf(device.Driver, device.Pool))
	}
	return pools
}

func (l *loop) reconcile(key controller.Key, now time.Time) controller.Decision {
	if key.Namespace == "" {
		rule, err := l.rules.Get(key.Name)
		if err != nil {
			return controller.Nothing
		}
		return decideRule(rule, l.progress(rule), now)
	}
	pod, err := l.pods.Pods(key.Namespace).Get(key.Name)
	if err != nil {
		l.plan(key, "")
		return controller.Nothing
	}
	e := l.evictionOf(pod, l.allRules())
	switch {
	case e == nil:
		planned := l.plan(key, "")
		return decidePod(pod, nil, planned == pod.UID, now, nil)
	case pod.DeletionTimestamp != nil:
		return controller.Nothing // the kubelet has to terminate it
	}
	l.plan(key, pod.UID)
	return decidePod(pod, e, true, now, func(n int) { l.evictedBy(pod, e, n) })
}

// plan notes the pod of a name that is to be evicted, or none if uid is empty, and returns the one that was.
func (l *loop) plan(key controller.Key, uid types.UID) (was types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was = l.planned[key]
	if uid == "" {
		delete(l.planned, key)
	} else {
		l.planned[key] = uid
	}
	return was
}

// evictedBy counts a pod that is evicted for the rules that are the reason; with n -1 it was not after all.
func (l *loop) evictedBy(pod *corev1.Pod, e *eviction, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > 0 {
		delete(l.planned, controller.KeyOf(pod))
	}
	for _, rule := range e.rules {
		l.evicted[rule.UID] += n
	}
}

// allRules returns the rules that evict.
func (l *loop) allRules() (evicting []*resourcev1.DeviceTaintRule) {
	all, _ := l.rules.List(labels.Everything()) // a cache does not fail
	for _, rule := range all {
		if rule.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute {
			evicting = append(evicting, rule)
		}
	}
	return evicting
}

// evictionOf returns when and why a pod is to be evicted, or nil.
func (l *loop) evictionOf(pod *corev1.Pod, rules []*resourcev1.DeviceTaintRule) *eviction {
	if pod.Spec.NodeName == "" {
		return nil
	}
	var e *eviction
	for i := range pod.Spec.ResourceClaims {
		name, mustOwn, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue // it was not created yet, or is not needed
		}
		claim, err := l.claims.ResourceClaims(pod.Namespace).Get(*name)
		if err != nil || claim.Status.Allocation == nil || mustOwn && resourceclaim.IsForPod(pod, claim, false) != nil || !resourceclaim.IsReservedForPod(pod, claim, false) {
			continue
		}
		e = e.and(evictionOfClaim(claim, l.device, rules))
	}
	return e
}

// device returns a device of the newest generation of its pool, or nil.
func (l *loop) device(driver, pool, name string) *resourcev1.Device {
	for _, slice := range l.newest(poolOf(driver, pool)) {
		for i := range slice.Spec.Devices {
			if slice.Spec.Devices[i].Name == name {
				return &slice.Spec.Devices[i]
			}
		}
	}
	return nil
}

// newest returns the slices of a pool's newest generation.
func (l *loop) newest(pool string) []*resourcev1.ResourceSlice {
	found, _ := l.sliceIndex.ByIndex(byPool, pool) // the only error is that the index is missing
	return newestOf(found)
}

func newestOf(found []any) (newest []*resourcev1.ResourceSlice) {
	for _, obj := range found {
		slice := obj.(*resourcev1.ResourceSlice)
		if len(newest) > 0 && slice.Spec.Pool.Generation > newest[0].Spec.Pool.Generation {
			newest = nil
		}
		if len(newest) == 0 || slice.Spec.Pool.Generation == newest[0].Spec.Pool.Generation {
			newest = append(newest, slice)
		}
	}
	return newest
}
