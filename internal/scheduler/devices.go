package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"

	"skiff/internal/scheduling"
)

// devices holds devices and the ResourceClaims that they are allocated to: what the informers have observed, and over it what pods that are being bound
// reserve.
type devices struct {
	claims     resourcelisters.ResourceClaimLister
	classes    deviceClasses
	slices     resourcelisters.ResourceSliceLister
	taintRules resourcelisters.DeviceTaintRuleLister
	extended   *extendedresourcecache.ExtendedResourceCache
	selectors  *cel.Cache // compiled

	mu       sync.Mutex
	inflight map[types.UID]inflightClaim
}

// inflightClaim is a claim that a pod is being bound with, until the informer has observed it so.
type inflightClaim struct {
	*resourcev1.ResourceClaim // allocated
	written                   bool
}

// maxSelectors is how many compiled selectors are kept, as in kube-scheduler.
const maxSelectors = 10

func newDevices(f informers.SharedInformerFactory) *devices {
	r := f.Resource().V1()
	return &devices{claims: r.ResourceClaims().Lister(), classes: deviceClasses{r.DeviceClasses().Lister()}, slices: r.ResourceSlices().Lister(),
		taintRules: r.DeviceTaintRules().Lister(), extended: extendedresourcecache.NewExtendedResourceCache(klog.Background()),
		selectors: cel.NewCache(maxSelectors, cel.Features{EnableConsumableCapacity: true}), inflight: map[types.UID]inflightClaim{}}
}

// ResourceClaim implements scheduling.Devices.
func (d *devices) ResourceClaim(namespace, name string) *resourcev1.ResourceClaim {
	claim := found(d.claims.ResourceClaims(namespace).Get(name))
	if claim == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.latest(claim)
}

// latest returns a claim as it was written, if the informer has not observed that.
func (d *devices) latest(claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	if f := d.inflight[claim.UID]; f.written && older(claim, f) {
		return f.ResourceClaim
	}
	return claim
}

// ExtendedResourceClaim implements scheduling.Devices.
func (d *devices) ExtendedResourceClaim(pod *corev1.Pod) *resourcev1.ResourceClaim {
	isIt := func(c *resourcev1.ResourceClaim) bool {
		return c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true" && metav1.IsControlledBy(c, pod)
	}
	list, _ := d.claims.ResourceClaims(pod.Namespace).List(labels.Everything()) // fails never
	for _, c := range list {
		if isIt(c) {
			return c
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.inflight {
		if f.written && isIt(f.ResourceClaim) {
			return f.ResourceClaim
		}
	}
	return nil
}

// IsBeingAllocated implements scheduling.Devices.
func (d *devices) IsBeingAllocated(claim types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.inflight[claim]
	return ok && !f.written
}

// Class implements scheduling.Devices.
func (d *devices) Class(name string) *resourcev1.DeviceClass { return found(d.classes.Get(name)) }

// ClassOf implements scheduling.Devices.
func (d *devices) ClassOf(name corev1.ResourceName) *resourcev1.DeviceClass {
	return d.extended.GetDeviceClass(name)
}

// Now implements scheduling.Devices.
func (d *devices) Now() time.Time { return time.Now() }

// deviceClasses lists all classes for the allocator.
type deviceClasses struct {
	resourcelisters.DeviceClassLister
}

func (c deviceClasses) List() ([]*resourcev1.DeviceClass, error) {
	return c.DeviceClassLister.List(labels.Everything())
}

// allocatorFeatures are the optional features of allocation that kube-scheduler has on by default.
var allocatorFeatures = structured.Features{AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true, DeviceBindingAndStatus: true,
	ConsumableCapacity: true, FractionalCapacityRange: true}

// Allocator implements scheduling.Devices.
func (d *devices) Allocator(timeout time.Duration) (scheduling.DeviceAllocator, error) {
	slices, err := d.taintedSlices()
	if err != nil {
		return nil, err
	}
	state, err := d.allocated()
	if err != nil {
		return nil, err
	}
	a, err := structured.NewAllocator(context.Background(), allocatorFeatures, state, d.classes, slices, d.selectors)
	return &deviceAllocator{a, timeout}, err
}

// allocated returns which devices, and how much of those that are shared, is allocated to claims.
func (d *devices) allocated() (structured.AllocatedState, error) {
	state := structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection()}
	d.mu.Lock()
	defer d.mu.Unlock()
	claims, err := d.claims.List(labels.Everything())
	if err != nil {
		return state, err
	}
	for _, c := range claims {
		if _, inflight := d.inflight[c.UID]; !inflight {
			addAllocated(&state, c)
		}
	}
	for _, f := range d.inflight {
		addAllocated(&state, f.ResourceClaim)
	}
	return state, nil
}

func addAllocated(state *structured.AllocatedState, claim *resourcev1.ResourceClaim) {
	if claim.Status.Allocation == nil {
		return
	}
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		if r.AdminAccess != nil && *r.AdminAccess {
			continue // whoever administers a device does not keep others from it
		}
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if r.ShareID == nil {
			state.AllocatedDevices.Insert(id)
			continue
		}
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
		if r.ConsumedCapacity != nil {
			state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
		}
	}
}

// taintedSlices returns all ResourceSlices, with the taints that DeviceTaintRules add to their devices.
func (d *devices) taintedSlices() ([]*resourcev1.ResourceSlice, error) {
	all, err := d.slices.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	rules, err := d.taintRules.List(labels.Everything())
	if err != nil || len(rules) == 0 {
		return all, err
	}
	out := make([]*resourcev1.ResourceSlice, 0, len(all))
	for _, s := range all {
		out = append(out, tainted(s, rules))
	}
	return out, nil
}

func tainted(s *resourcev1.ResourceSlice, rules []*resourcev1.DeviceTaintRule) *resourcev1.ResourceSlice {
	selects := func(name *string, value string) bool { return name == nil || *name == value }
	out := s
	for _, rule := range rules {
		of := rule.Spec.DeviceSelector
		if of == nil || !selects(of.Driver, s.Spec.Driver) || !selects(of.Pool, s.Spec.Pool.Name) {
			continue
		}
		for i := range s.Spec.Devices {
			if !selects(of.Device, s.Spec.Devices[i].Name) {
				continue
			}
			if out == s {
				out = s.DeepCopy()
			}
			out.Spec.Devices[i].Taints = append(out.Spec.Devices[i].Taints, rule.Spec.Taint)
		}
	}
	return out
}

// deviceAllocator is the allocator of k8s.io/dynamic-resource-allocation.
type deviceAllocator struct {
	structured.Allocator
	timeout time.Duration
}

// Allocate implements scheduling.DeviceAllocator.
func (a *deviceAllocator) Allocate(n *corev1.Node, claims []*resourcev1.ResourceClaim) ([]resourcev1.AllocationResult, error) {
	ctx := context.Background()
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	list, err := a.Allocator.Allocate(ctx, n, claims)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, scheduling.ErrAllocationTimeout
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return nil, noDevicesError{err}
	}
	return list, err
}

// noDevicesError says why a node has no devices for a claim.
type noDevicesError struct{ error }

func (noDevicesError) Is(target error) bool { return target == scheduling.ErrNoDevices }

// reserve makes the claims count as allocated.
func (d *devices) reserve(list []scheduling.ReservedClaim) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, r := range list {
		if r.Devices == nil {
			continue
		}
		_, inflight := d.inflight[r.Claim.UID]
		observed := found(d.claims.ResourceClaims(r.Claim.Namespace).Get(r.Claim.Name))
		if inflight || observed != nil && observed.UID == r.Claim.UID && observed.Status.Allocation != nil {
			for _, before := range list[:i] {
				if before.Devices != nil {
					delete(d.inflight, before.Claim.UID)
				}
			}
			return fmt.Errorf("claim %s/%s got allocated elsewhere in the meantime", r.Claim.Namespace, r.Claim.Name)
		}
		claim := *r.Claim
		claim.Status.Allocation = r.Devices
		d.inflight[claim.UID] = inflightClaim{ResourceClaim: &claim}
	}
	return nil
}

// unreserve drops a claim that was not written.
func (d *devices) unreserve(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f, ok := d.inflight[uid]; ok && !f.written {
		delete(d.inflight, uid)
	}
}

// wrote notes that a claim was written, which was reserved with that UID if at all. It counts as written until the informer has observed it.
func (d *devices) wrote(uid types.UID, claim *resourcev1.ResourceClaim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.inflight, uid)
	if observed := found(d.claims.ResourceClaims(claim.Namespace).Get(claim.Name)); observed == nil || older(observed, claim) {
		d.inflight[claim.UID] = inflightClaim{claim, true}
	}
}

// observed drops a claim that was written and that the informer has observed since.
func (d *devices) observed(claim *resourcev1.ResourceClaim, deleted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f, ok := d.inflight[claim.UID]; ok && f.written && (deleted || !older(claim, f)) {
		delete(d.inflight, claim.UID)
	}
}

func claimUIDWaiter(uid types.UID) string { return "resourceclaim " + string(uid) }

// addDeviceHandlers connects the informers of devices with what is reserved of them, the pods that wait for them, and the queue.
func (s *Scheduler) addDeviceHandlers() error {

	r := s.others.Resource().V1()
	for _, f := range []struct {
		informer cache.SharedIndexInformer
		changed  func(action scheduling.Action, old, obj any)
	}{
		{r.ResourceClaims().Informer(), func(action scheduling.Action, old, obj any) {
			latest, _ := obj.(*resourcev1.ResourceClaim)
			if action == scheduling.Delete {
				latest = old.(*resourcev1.ResourceClaim)
			}
			s.devices.observed(latest, action == scheduling.Delete)
			s.waiters.wake(claimUIDWaiter(latest.UID))
			s.queue.onEvent(scheduling.Event{Kind: scheduling.ResourceClaimKind, Action: action, Old: old, New: obj}, nil)
		}},
		{r.DeviceClasses().Informer(), func(action scheduling.Action, old, obj any) {
			switch action {
			case scheduling.Add:
				s.devices.extended.OnAdd(obj, false)
			case scheduling.Update:
				s.devices.extended.OnUpdate(old, obj)
			default:
				s.devices.extended.OnDelete(old)
			}
			s.queue.onEvent(scheduling.Event{Kind: scheduling.DeviceClassKind, Action: action, Old: old, New: obj}, nil)
		}},
		{r.ResourceSlices().Informer(), func(action scheduling.Action, old, obj any) {
			s.queue.onEvent(scheduling.Event{Kind: scheduling.ResourceSliceKind, Action: action, Old: old, New: obj}, nil)
		}},
		{r.DeviceTaintRules().Informer(), func(scheduling.Action, any, any) { // changes the devices of slices
			s.queue.onEvent(scheduling.Event{Kind: scheduling.ResourceSliceKind, Action: scheduling.Update}, nil)
		}},
	} {
		registered, err := f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { f.changed(scheduling.Add, nil, obj) },
			UpdateFunc: func(old, obj any) { f.changed(scheduling.Update, old, obj) },
			DeleteFunc: func(obj any) { lastState(obj, func(old any) { f.changed(scheduling.Delete, old, nil) }) },
		})
		if err != nil {
			return err
		}
		s.synced = append(s.synced, registered.HasSyncedChecker())
	}
	return nil
}

// claimGate keeps pods back whose ResourceClaims do not exist yet.
type claimGate struct {
	scheduling.Plugin
	devices scheduling.Devices
}

// PreEnqueue implements scheduling.PreEnqueuePlugin.
func (g *claimGate) PreEnqueue(pod *scheduling.Pod) *scheduling.Status {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil
	}
	if _, err := scheduling.ResourceClaims(pod.Pod, g.devices); err != nil {
		return &scheduling.Status{Code: scheduling.UnschedulableAndUnresolvable, Plugin: scheduling.DynamicResources, Reasons: []string{err.Error()}}
	}
	return nil
}
