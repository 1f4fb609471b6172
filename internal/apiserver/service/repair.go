package service

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
	"skiff/internal/catalog/core"
)

const (
	repairInterval = 3 * time.Minute
	retryInterval  = 10 * time.Second // after a failed repair
	// leakAfter is the age from which an address without its service counts as leaked: no request takes longer.
	leakAfter = time.Minute
	// portLeakAfter is how long every repair must have found a port allocated but used by no service before it is released.
	portLeakAfter = 2 * repairInterval
)

// Run repairs at once and then every few minutes, until ctx ends.
func (a *Allocator) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := repairInterval
		if err := a.Repair(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("failed to repair the allocation of cluster IPs and node ports", "error", err)
			wait = retryInterval
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// Repair compares the allocations with the services: it allocates what a service has and is not allocated, and releases what is allocated and
// no service has. Both are caused by processes that died during a request, or by users who edit IPAddresses.
func (a *Allocator) Repair(ctx context.Context) error {
	return errors.Join(a.repairAddresses(ctx), a.repairPorts(ctx))
}

func (a *Allocator) repairAddresses(ctx context.Context) error {
	services, err := a.list(ctx)
	if err != nil {
		return err
	}
	var all []block
	if err := a.addresses.eachCIDR(func(c *networkingv1.ServiceCIDR) { all = append(all, blocksOf(c)...) }); err != nil {
		return err
	}
	var errs []error
	for _, svc := range services {
		for _, ip := range core.ReleasedClusterIPs(svc) {
			errs = append(errs, a.restore(ctx, svc, ip, all))
		}
	}
	a.addresses.registry.Cache.Snapshot().Ascend("", "", func(it *cache.Item) bool {
		if it.Labels[networkingv1.LabelManagedBy] == managedBy {
			errs = append(errs, a.releaseLeaked(ctx, it))
		}
		return ctx.Err() == nil
	})
	return errors.Join(errs...)
}

// restore allocates an address of a service to it, unless it is.
func (a *Allocator) restore(ctx context.Context, svc *corev1.Service, ip string, all []block) error {
	log := a.log.With("ip", ip, "service", svc.Namespace+"/"+svc.Name)
	addr, err := parse(ip)
	if err != nil {
		log.Warn("cluster IP of service is not an address; recreate the service")
		return nil
	}
	if !slices.ContainsFunc(all, func(b block) bool { return b.contains(addr) }) {
		log.Warn("cluster IP of service is in no ServiceCIDR; recreate the service")
		return nil
	}
	it := a.addresses.registry.Cache.Get(addr.String())
	if it != nil {
		correct, err := a.correct(it, svc, log.Warn)
		if err != nil || correct {
			return err
		}
	}
	// Services are listed before addresses are read: the service may be deleted by now, and its address released.
	if now, err := a.service(ctx, svc.Namespace, svc.Name); err != nil || !has(now, addr) {
		return err
	}
	log.Warn("cluster IP of service is not allocated to it; repairing")
	if it != nil {
		if err := a.addresses.undo(ctx, allocation{name: it.Name, uid: types.UID(it.UID)}); err != nil {
			return err
		}
	}
	if _, err = a.addresses.create(ctx, svc, addr); errors.Is(err, errTaken) {
		return nil // the next repair finds out by which service
	}
	return err
}

// correct reports whether an IPAddress belongs to the service, or must not be changed for another reason.
func (a *Allocator) correct(it *cache.Item, svc *corev1.Service, warn func(string, ...any)) (bool, error) {
	obj, err := a.addresses.registry.Decode(it)
	if err != nil {
		return false, err
	}
	address := obj.(*networkingv1.IPAddress)
	want := newIPAddress(svc, netip.MustParseAddr(address.Name))
	for key, value := range want.Labels {
		if address.Labels[key] != value {
			return false, nil
		}
	}
	ref := address.Spec.ParentRef
	if names(ref, svc) || !isService(ref) {
		return names(ref, svc), nil
	}
	if a.inGracePeriod(address) {
		return true, nil
	}
	other := a.services.Cache.Get(a.services.Key(ref.Namespace, ref.Name))
	if other == nil {
		return false, nil
	}
	obj, err = a.services.Decode(other)
	if err != nil || !has(obj.(*corev1.Service), netip.MustParseAddr(address.Name)) {
		return false, err
	}
	warn("cluster IP is allocated to two services; recreate one of them", "other", ref.Namespace+"/"+ref.Name)
	return true, nil
}

// releaseLeaked releases an address that was allocated for a service which does not have it.
func (a *Allocator) releaseLeaked(ctx context.Context, it *cache.Item) error {
	obj, err := a.addresses.registry.Decode(it)
	if err != nil {
		return err
	}
	address := obj.(*networkingv1.IPAddress)
	if ref := address.Spec.ParentRef; isService(ref) {
		if a.inGracePeriod(address) {
			return nil
		}
		addr, err := netip.ParseAddr(address.Name)
		if err != nil {
			return nil
		}
		// The cache is read first: it is nearly always up to date.
		if item := a.services.Cache.Get(a.services.Key(ref.Namespace, ref.Name)); item != nil {
			if svc, err := a.services.Decode(item); err != nil || has(svc.(*corev1.Service), addr) {
				return err
			}
		}
		svc, err := a.service(ctx, ref.Namespace, ref.Name)
		if err != nil || has(svc, addr) {
			return err
		}
	}
	a.log.Warn("cluster IP is allocated, but no service has it; releasing it", "ip", address.Name)
	version := address.ResourceVersion
	return a.addresses.delete(ctx, address.Name, &metav1.Preconditions{UID: &address.UID, ResourceVersion: &version}, nil)
}

// inGracePeriod reports whether the service that an address was allocated for may still have to be written.
func (a *Allocator) inGracePeriod(address *networkingv1.IPAddress) bool {
	return a.clock.Since(address.CreationTimestamp.Time) <= leakAfter
}

// service returns the newest state of a service, nil if it does not exist.
func (a *Allocator) service(ctx context.Context, namespace, name string) (*corev1.Service, error) {
	it, err := a.services.Get(ctx, namespace, name, "")
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	obj, err := a.services.Decode(it)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Service), nil
}

// has reports whether an address is a cluster IP of the service, which may be nil.
func has(svc *corev1.Service, ip netip.Addr) bool {
	if svc == nil {
		return false
	}
	core.NormalizeClusterIPs(svc, nil)
	return slices.ContainsFunc(core.ReleasedClusterIPs(svc), func(s string) bool {
		clusterIP, err := parse(s)
		return err == nil && clusterIP == ip
	})
}

// list returns all services, including every write that was acknowledged before the call.
func (a *Allocator) list(ctx context.Context) ([]*corev1.Service, error) {
	page, err := a.services.List(ctx, registry.List{})
	if err != nil {
		return nil, err
	}
	services := make([]*corev1.Service, len(page.Items))
	for i, it := range page.Items {
		obj, err := a.services.Decode(it)
		if err != nil {
			return nil, err
		}
		services[i] = obj.(*corev1.Service)
		core.DefaultOnRead(services[i], a.families[0])
	}
	return services, nil
}

// nodePortsInUse returns the node ports of all services.
func (a *Allocator) nodePortsInUse(ctx context.Context) (map[int32]bool, error) {
	services, err := a.list(ctx)
	if err != nil {
		return nil, err
	}
	used := map[int32]bool{}
	for _, svc := range services {
		for _, port := range core.ReleasedNodePorts(svc) {
			used[port] = true
		}
	}
	return used, nil
}

func (a *Allocator) repairPorts(ctx context.Context) error {
	missing, leaked, err := a.ports.repair(ctx, a.clock.Now())
	if len(missing) > 0 {
		a.log.Warn("allocated node ports that services have but that were not allocated", "ports", missing)
	}
	if len(leaked) > 0 {
		a.log.Warn("released node ports that were allocated but that no service has", "ports", leaked)
	}
	return err
}

// repair sets the bits to the ports of the services. A port that no service has may be allocated for one that is about to be stored: it is
// released only if several repairs find it unused.
func (p *ports) repair(ctx context.Context, now time.Time) (missing, leaked []int32, err error) {
	unlock, err := p.acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	for range maxPortTries {
		// The bits must be read before the services: a port allocated in between then makes the write fail.
		p.revision = 0
		if err := p.load(ctx); err != nil {
			return nil, nil, err
		}
		used, err := p.inUse(ctx)
		if err != nil {
			return nil, nil, err
		}
		next := p.bitsOf(used)
		leaks := map[int32]time.Time{}
		missing, leaked = nil, nil
		for i := range p.valid.Size {
			port := int32(p.valid.Base + i)
			since, seen := p.leaks[port]
			switch allocated := p.allocated.Bit(i) == 1; {
			case used[port] && !allocated:
				missing = append(missing, port)
			case used[port] || !allocated:
			case seen && now.Sub(since) >= portLeakAfter:
				leaked = append(leaked, port)
			default:
				if !seen {
					since = now
				}
				leaks[port] = since
				next.SetBit(next, i, 1)
			}
		}
		conflicted := false
		if next.Cmp(p.allocated) != 0 {
			if conflicted, err = p.put(ctx, next); err != nil {
				return nil, nil, err
			}
		}
		if !conflicted {
			p.leaks = leaks
			return missing, leaked, nil
		}
	}
	return nil, nil, apierrors.NewServerTimeout(corev1.Resource("services"), "repair node ports of", 1)
}
