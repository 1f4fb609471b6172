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
	repairEvery = 3 * time.Minute
	retryAfter  = 10 * time.Second
	// leakAfter is the age from which an address without its service is taken to be left behind: no request takes longer.
	leakAfter = time.Minute
	// portLeakAfter is for how long every repair must have found a port taken, but used by no service, before it is given back.
	portLeakAfter = 2 * repairEvery
)

// Run repairs now and every few minutes, until ctx ends.
func (a *Allocator) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := repairEvery
		if err := a.Repair(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("repairing the allocation of cluster IPs and node ports", "error", err)
			wait = retryAfter
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// Repair compares what is taken with what services have: it takes what a service has and nobody took, and gives back what was taken
// and no service has. Both come from processes that died in the middle of a request, or from people who edit IPAddresses.
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
			errs = append(errs, a.collect(ctx, it))
		}
		return ctx.Err() == nil
	})
	return errors.Join(errs...)
}

// restore sees to it that an address of a service is taken in its name.
func (a *Allocator) restore(ctx context.Context, svc *corev1.Service, ip string, all []block) error {
	log := a.log.With("ip", ip, "service", svc.Namespace+"/"+svc.Name)
	addr, err := parse(ip)
	if err != nil {
		log.Warn("the cluster IP of a service is not an address; please recreate the service")
		return nil
	}
	if !slices.ContainsFunc(all, func(b block) bool { return b.contains(addr) }) {
		log.Warn("the cluster IP of a service is in no ServiceCIDR; please recreate the service")
		return nil
	}
	it := a.addresses.registry.Cache.Get(addr.String())
	if it != nil {
		sound, err := a.sound(it, svc, log.Warn)
		if err != nil || sound {
			return err
		}
	}
	// Services are listed before addresses are looked at: the service may be gone by now, and have given its address back.
	if now, err := a.service(ctx, svc.Namespace, svc.Name); err != nil || !has(now, addr) {
		return err
	}
	log.Warn("the cluster IP of a service is not allocated to it; repairing")
	if it != nil {
		if err := a.addresses.undo(ctx, taken{name: it.Name, uid: types.UID(it.UID)}); err != nil {
			return err
		}
	}
	if _, err = a.addresses.create(ctx, svc, addr); errors.Is(err, errTaken) {
		return nil // by the next round it is clear by whom
	}
	return err
}

// sound reports whether an IPAddress stands for what a service has, or can be left alone.
func (a *Allocator) sound(it *cache.Item, svc *corev1.Service, warn func(string, ...any)) (bool, error) {
	obj, err := a.addresses.registry.Object(it)
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
	if a.young(address) {
		return true, nil
	}
	other := a.services.Cache.Get(a.services.Key(ref.Namespace, ref.Name))
	if other == nil {
		return false, nil
	}
	obj, err = a.services.Object(other)
	if err != nil || !has(obj.(*corev1.Service), netip.MustParseAddr(address.Name)) {
		return false, err
	}
	warn("a cluster IP was given to two services; please recreate one of them", "other", ref.Namespace+"/"+ref.Name)
	return true, nil
}

// collect removes an address that was taken for a service which does not have it.
func (a *Allocator) collect(ctx context.Context, it *cache.Item) error {
	obj, err := a.addresses.registry.Object(it)
	if err != nil {
		return err
	}
	address := obj.(*networkingv1.IPAddress)
	if ref := address.Spec.ParentRef; isService(ref) {
		if a.young(address) {
			return nil
		}
		addr, err := netip.ParseAddr(address.Name)
		if err != nil {
			return nil
		}
		// The cache is asked first: it is nearly always right.
		if item := a.services.Cache.Get(a.services.Key(ref.Namespace, ref.Name)); item != nil {
			if svc, err := a.services.Object(item); err != nil || has(svc.(*corev1.Service), addr) {
				return err
			}
		}
		svc, err := a.service(ctx, ref.Namespace, ref.Name)
		if err != nil || has(svc, addr) {
			return err
		}
	}
	a.log.Warn("a cluster IP is allocated, but no service has it; cleaning up", "ip", address.Name)
	version := address.ResourceVersion
	return a.addresses.delete(ctx, address.Name, &metav1.Preconditions{UID: &address.UID, ResourceVersion: &version}, nil)
}

// young reports whether the service that an address was taken for may be yet to be written.
func (a *Allocator) young(address *networkingv1.IPAddress) bool {
	return a.clock.Since(address.CreationTimestamp.Time) <= leakAfter
}

// service returns a service as it is now, or nil.
func (a *Allocator) service(ctx context.Context, namespace, name string) (*corev1.Service, error) {
	it, err := a.services.Get(ctx, namespace, name, "")
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	obj, err := a.services.Object(it)
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
		own, err := parse(s)
		return err == nil && own == ip
	})
}

// list returns all services, with every write acknowledged before the call.
func (a *Allocator) list(ctx context.Context) ([]*corev1.Service, error) {
	page, err := a.services.List(ctx, registry.List{})
	if err != nil {
		return nil, err
	}
	services := make([]*corev1.Service, len(page.Items))
	for i, it := range page.Items {
		obj, err := a.services.Object(it)
		if err != nil {
			return nil, err
		}
		services[i] = obj.(*corev1.Service)
		core.DefaultOnRead(services[i], a.families[0])
	}
	return services, nil
}

// nodePortsInUse are the node ports that services have.
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
		a.log.Warn("services have node ports that were not allocated; repaired", "ports", missing)
	}
	if len(leaked) > 0 {
		a.log.Warn("node ports were allocated, but no service has them; cleaned up", "ports", leaked)
	}
	return err
}

// repair makes the bits those of the services. A port that no service has may be on its way to one: it is cleared only if it stays
// that way.
func (p *ports) repair(ctx context.Context, now time.Time) (missing, leaked []int32, err error) {
	done, err := p.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	for range maxPortTries {
		// The bits must be read before the services: a port taken in between then makes the write fail.
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
			switch taken := p.taken.Bit(i) == 1; {
			case used[port] && !taken:
				missing = append(missing, port)
			case used[port] || !taken:
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
		raced := false
		if next.Cmp(p.taken) != 0 {
			if raced, err = p.put(ctx, next); err != nil {
				return nil, nil, err
			}
		}
		if !raced {
			p.leaks = leaks
			return missing, leaked, nil
		}
	}
	return nil, nil, apierrors.NewServerTimeout(corev1.Resource("services"), "repair node ports of", 1)
}
