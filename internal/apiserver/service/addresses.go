package service

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	netutils "k8s.io/utils/net"

	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
	"skiff/internal/catalog"
	"skiff/internal/catalog/core"
)

// DefaultCIDR is the name of the ServiceCIDR that every cluster has.
const DefaultCIDR = "kubernetes"

// managedBy marks the IPAddresses that belong to services.
const managedBy = "ipallocator.k8s.io"

// The reasons why a cluster IP is not allocated, with upstream's texts.
var (
	errFull       = errors.New("range is full")
	errTaken      = errors.New("provided IP is already allocated")
	errMismatched = errors.New("the provided network does not match the current range")
)

type errNotInRange struct{ ip, valid string }

func (e errNotInRange) Error() string {
	return fmt.Sprintf("the provided IP (%s) is not in the valid range. The range of valid IPs is %s", e.ip, e.valid)
}

// refused reports whether the error says that the requested address cannot be allocated, rather than that the store failed.
func refused(err error) bool {
	var outside errNotInRange
	return errors.Is(err, errTaken) || errors.Is(err, errMismatched) || errors.As(err, &outside)
}

// addresses allocates cluster IPs. A cluster IP is allocated while an IPAddress of its name exists.
type addresses struct {
	registry, cidrs *registry.Registry
	manage          func(catalog.Object) // sets the managed fields of a new IPAddress
	clock           clock.PassiveClock
}

// allocation is an allocated address, identified by its IPAddress.
type allocation struct {
	name string
	uid  types.UID
}

// allocate allocates the address that a claim names, or any address of its family.
func (a *addresses) allocate(ctx context.Context, svc *corev1.Service, c core.IPClaim) (got allocation, err error) {
	err = a.retryWhenSynced(ctx, func() error {
		got, err = a.allocateCached(ctx, svc, c)
		return err
	})
	return got, err
}

// retryWhenSynced tries again, after the cache has caught up with the store, what failed because of the cached ServiceCIDRs or addresses.
func (a *addresses) retryWhenSynced(ctx context.Context, try func() error) error {
	err := try()
	if err == nil || errors.Is(err, errTaken) || !refused(err) && !errors.Is(err, errFull) {
		return err
	}
	if err := a.registry.WaitFor(ctx, ""); err != nil {
		return err
	}
	return try()
}

func (a *addresses) allocateCached(ctx context.Context, svc *corev1.Service, c core.IPClaim) (allocation, error) {
	blocks, err := a.blocks(c.Family)
	if err != nil {
		return allocation{}, err
	}
	if c.IP == "" {
		return a.allocateAny(ctx, svc, blocks)
	}
	ip, err := parse(c.IP)
	if err != nil {
		return allocation{}, apierrors.NewInternalError(err)
	}
	if !slices.ContainsFunc(blocks, func(b block) bool { return b.contains(ip) }) {
		return allocation{}, errMismatched
	}
	return a.create(ctx, svc, ip)
}

func (a *addresses) allocateAny(ctx context.Context, svc *corev1.Service, blocks []block) (allocation, error) {
	for _, b := range blocks {
		for ip := range b.candidates() {
			if a.registry.Cache.Get(ip.String()) != nil {
				continue
			}
			got, err := a.create(ctx, svc, ip)
			if errors.Is(err, errTaken) {
				continue // allocated by another request meanwhile
			}
			return got, err
		}
	}
	return allocation{}, errFull
}

// dryRun returns the address for a dry run. As upstream, it returns the network's address if any would do, and does not check whether a
// requested address is free.
func (a *addresses) dryRun(ctx context.Context, c core.IPClaim) (ip string, err error) {
	err = a.retryWhenSynced(ctx, func() error {
		ip, err = a.dryRunCached(c)
		return err
	})
	return ip, err
}

func (a *addresses) dryRunCached(c core.IPClaim) (string, error) {
	blocks, err := a.blocks(c.Family)
	if err != nil {
		return "", err
	}
	if len(blocks) == 0 {
		return "", errFull
	}
	if c.IP == "" {
		return blocks[0].prefix.Masked().Addr().String(), nil
	}
	ip, err := parse(c.IP)
	if err != nil {
		return "", apierrors.NewInternalError(err)
	}
	if !slices.ContainsFunc(blocks, func(b block) bool { return b.contains(ip) }) {
		return "", errNotInRange{ip.String(), blocks[0].prefix.String()}
	}
	return c.IP, nil
}

// create allocates one address for a service by creating its IPAddress.
func (a *addresses) create(ctx context.Context, svc *corev1.Service, ip netip.Addr) (allocation, error) {
	obj := newIPAddress(svc, ip)
	if a.manage != nil {
		a.manage(obj)
	}
	it, err := a.registry.Create(ctx, obj, a.write())
	if apierrors.IsAlreadyExists(err) {
		return allocation{}, errTaken
	}
	if err != nil {
		return allocation{}, err
	}
	return allocation{name: it.Name, uid: types.UID(it.UID)}, nil
}

func newIPAddress(svc *corev1.Service, ip netip.Addr) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name:   ip.String(),
			Labels: map[string]string{networkingv1.LabelIPAddressFamily: string(familyOf(ip)), networkingv1.LabelManagedBy: managedBy},
		},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: svc.Namespace, Name: svc.Name}},
	}
}

func (a *addresses) write() registry.Write {
	return registry.Write{Warn: func(string) {}, Request: catalog.Request{Now: a.clock.Now()}}
}

// undo releases an address that was allocated for a service that was not stored.
func (a *addresses) undo(ctx context.Context, t allocation) error {
	return a.delete(ctx, t.name, &metav1.Preconditions{UID: &t.uid}, nil)
}

var errForeign = errors.New("the address belongs to another")

// release releases an address of a service, unless it belongs to another service by now.
func (a *addresses) release(ctx context.Context, svc *corev1.Service, ip string) error {
	addr, err := parse(ip)
	if err != nil {
		return err
	}
	return a.delete(ctx, addr.String(), nil, func(_ context.Context, _, old catalog.Object) error {
		if !names(old.(*networkingv1.IPAddress).Spec.ParentRef, svc) {
			return errForeign
		}
		return nil
	})
}

func (a *addresses) delete(ctx context.Context, name string, only *metav1.Preconditions, check func(context.Context, catalog.Object, catalog.Object) error) error {
	w := a.write()
	w.Validate = check
	_, _, err := a.registry.Delete(ctx, "", name, &metav1.DeleteOptions{Preconditions: only}, w)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) && only != nil || errors.Is(err, errForeign) {
		return nil
	}
	return err
}

// names reports whether a reference refers to the service.
func names(ref *networkingv1.ParentReference, svc *corev1.Service) bool {
	return isService(ref) && ref.Namespace == svc.Namespace && ref.Name == svc.Name
}

func isService(ref *networkingv1.ParentReference) bool {
	return ref != nil && ref.Group == "" && ref.Resource == "services"
}

// blocks returns the ranges of a family to allocate addresses from, that of the default ServiceCIDR first.
func (a *addresses) blocks(family corev1.IPFamily) ([]block, error) {
	var blocks []block
	err := a.eachCIDR(func(c *networkingv1.ServiceCIDR) {
		if !ready(c) {
			return
		}
		for _, b := range blocksOf(c) {
			if b.family() != family {
				continue
			}
			if c.Name == DefaultCIDR {
				blocks = slices.Insert(blocks, 0, b)
			} else {
				blocks = append(blocks, b)
			}
		}
	})
	return blocks, err
}

func (a *addresses) eachCIDR(f func(*networkingv1.ServiceCIDR)) error {
	var failure error
	a.cidrs.Cache.Snapshot().Ascend("", "", func(it *cache.Item) bool {
		obj, err := a.cidrs.Decode(it)
		if err != nil {
			failure = err
			return false
		}
		f(obj.(*networkingv1.ServiceCIDR))
		return true
	})
	return failure
}

// ready reports whether addresses may be allocated from a ServiceCIDR. One without a Ready condition is ready, so that the server works without controllers.
func ready(c *networkingv1.ServiceCIDR) bool {
	if c.DeletionTimestamp != nil {
		return false
	}
	for _, condition := range c.Status.Conditions {
		if condition.Type == networkingv1.ServiceCIDRConditionReady {
			return condition.Status == metav1.ConditionTrue
		}
	}
	return true
}

func blocksOf(c *networkingv1.ServiceCIDR) []block {
	var blocks []block
	for _, cidr := range c.Spec.CIDRs {
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			if b, ok := newBlock(prefix); ok {
				blocks = append(blocks, b)
			}
		}
	}
	return blocks
}

// parse parses an address as leniently as the API does.
func parse(ip string) (netip.Addr, error) {
	addr, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(ip))
	if !ok {
		return addr, fmt.Errorf("failed to parse service IP %q", ip)
	}
	return addr.Unmap(), nil
}

func familyOf(ip netip.Addr) corev1.IPFamily {
	if ip.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
