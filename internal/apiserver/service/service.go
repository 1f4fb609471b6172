package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"skiff/internal/apiserver/registry"
	"skiff/internal/catalog"
	"skiff/internal/catalog/core"
	"skiff/internal/store"
)

// Options configure an Allocator. Fields are required unless their comment names a default.
type Options struct {
	Services, IPAddresses, ServiceCIDRs *registry.Registry

	Store     store.Store
	Prefix    string   // of all keys: /registry
	AsJSON    bool     // store JSON instead of protobuf
	CIDRs     []string // of the default ServiceCIDR, that of the primary family first
	NodePorts string   // 30000-32767

	// Manage, if set, is called with every new IPAddress, to set its managed fields.
	Manage func(catalog.Object)
	Clock  clock.PassiveClock // the real clock if nil
	Log    *slog.Logger       // slog.Default if nil
}

// Allocator allocates cluster IPs and node ports.
type Allocator struct {
	services  *registry.Registry
	families  []corev1.IPFamily // of the cluster, the primary first
	addresses *addresses
	ports     *ports
	clock     clock.PassiveClock
	log       *slog.Logger
}

// New returns an allocator. It does not access the store.
func New(o Options) (*Allocator, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	nodePorts, err := utilnet.ParsePortRange(o.NodePorts)
	if err == nil && nodePorts.Base < 1 {
		err = errors.New("there is no port 0")
	}
	if err != nil {
		return nil, fmt.Errorf("invalid range of node ports %q: want two ports like 30000-32767: %w", o.NodePorts, err)
	}
	a := &Allocator{services: o.Services, clock: o.Clock, log: o.Log}
	for _, cidr := range o.CIDRs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("invalid range of cluster IPs %q: want a CIDR like 10.43.0.0/16: %w", cidr, err)
		}
		a.families = append(a.families, familyOf(prefix.Addr()))
	}
	if len(a.families) == 0 {
		return nil, errors.New("no range of cluster IPs: want at least one CIDR like 10.43.0.0/16")
	}
	a.addresses = &addresses{registry: o.IPAddresses, cidrs: o.ServiceCIDRs, manage: o.Manage, clock: o.Clock}
	a.ports = newPorts(o, *nodePorts, a.nodePortsInUse)
	return a, nil
}

// Hooks returns the hooks of the registry of services.
func (a *Allocator) Hooks() registry.Hooks {
	return registry.Hooks{
		BeginCreate: func(ctx context.Context, obj catalog.Object, dryRun bool) (func(bool), error) {
			return a.begin(ctx, obj.(*corev1.Service), nil, dryRun)
		},
		BeginUpdate: func(ctx context.Context, obj, old catalog.Object, dryRun bool) (func(bool), error) {
			before := old.(*corev1.Service)
			core.DefaultOnRead(before, a.families[0])
			return a.begin(ctx, obj.(*corev1.Service), before, dryRun)
		},
		AfterDelete: func(ctx context.Context, obj catalog.Object) { a.release(ctx, obj.(*corev1.Service)) },
	}
}

var serviceKind = schema.GroupKind{Kind: "Service"}

// releaseTimeout bounds the release after a request has ended.
const releaseTimeout = 10 * time.Second

// begin allocates what a service needs that is to be created (old is nil) or updated. The returned function must be called after the write.
func (a *Allocator) begin(ctx context.Context, svc, old *corev1.Service, dryRun bool) (func(stored bool), error) {
	if errs := core.PrepareAllocation(svc, old, a.families); len(errs) > 0 {
		return nil, apierrors.NewInvalid(serviceKind, svc.Name, errs)
	}
	t := &transaction{a: a, ctx: ctx, svc: svc, dryRun: dryRun}
	err := t.allocateAddresses(old)
	if err == nil {
		err = t.allocatePorts(old)
	}
	if err != nil {
		t.finish(false)
		return nil, err
	}
	return t.finish, nil
}

// transaction holds what one request has allocated, which is released if it fails, and what it no longer needs, which is released if it succeeds.
type transaction struct {
	a      *Allocator
	ctx    context.Context
	svc    *corev1.Service
	dryRun bool

	allocated      []allocation // cluster IPs
	unneeded       []string     // cluster IPs
	allocatedPorts []int32
	unneededPorts  []int32
}

func (t *transaction) allocateAddresses(old *corev1.Service) error {
	claims, unneeded := core.ClusterIPClaims(t.svc, old)
	t.unneeded = unneeded
	for i, c := range claims {
		address, err := t.allocateAddress(c)
		if err != nil {
			// The error shows an entry for each family, as upstream's does.
			for _, open := range claims[i:] {
				core.SetClusterIP(t.svc, open, open.IP)
			}
			return t.addressFailure(c, err)
		}
		core.SetClusterIP(t.svc, c, address)
	}
	return nil
}

// allocateAddress allocates an address and returns it as it is written in the service: in the client's spelling, if the client chose it.
func (t *transaction) allocateAddress(c core.IPClaim) (string, error) {
	addresses := t.a.addresses
	if t.dryRun {
		return addresses.dryRun(t.ctx, c)
	}
	got, err := addresses.allocate(t.ctx, t.svc, c)
	if err != nil {
		return "", err
	}
	t.allocated = append(t.allocated, got)
	if c.IP != "" {
		return c.IP, nil
	}
	return got.name, nil
}

func (t *transaction) addressFailure(c core.IPClaim, err error) error {
	if errors.Is(err, errFull) {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP for Service %q: %w", t.svc.Name, err))
	}
	if !refused(err) {
		return err
	}
	return apierrors.NewInvalid(serviceKind, t.svc.Name, field.ErrorList{field.Invalid(field.NewPath("spec", "clusterIPs"), t.svc.Spec.ClusterIPs,
		fmt.Sprintf("failed to allocate IP %v: %v", c.IP, err))})
}

func (t *transaction) allocatePorts(old *corev1.Service) error {
	var failure, reason error
	ports, health := slices.Clone(t.svc.Spec.Ports), t.svc.Spec.HealthCheckNodePort
	err := t.a.ports.allocate(t.ctx, t.dryRun, func(p pool) error {
		t.svc.Spec.Ports, t.svc.Spec.HealthCheckNodePort = slices.Clone(ports), health // the function may be called more than once
		failure = core.AllocateNodePorts(t.svc, old, p)
		t.allocatedPorts, t.unneededPorts, reason = p.result()
		return failure
	})
	if err == nil {
		return nil
	}
	t.allocatedPorts = nil // nothing was written
	var invalid *field.Error
	switch {
	case failure == nil:
		return err // of the store
	case errors.As(err, &invalid):
		return apierrors.NewInvalid(serviceKind, t.svc.Name, field.ErrorList{invalid})
	case reason != nil:
		return apierrors.NewInternalError(err)
	}
	return err
}

// finish releases what is not needed, depending on whether the service was stored.
func (t *transaction) finish(stored bool) {
	if t.dryRun {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), releaseTimeout)
	defer cancel()
	if stored {
		t.a.releaseAll(ctx, t.svc, t.unneeded, t.unneededPorts)
		return
	}
	for _, unused := range t.allocated {
		if err := t.a.addresses.undo(ctx, unused); err != nil {
			t.a.log.Warn("failed to release unused cluster IP; repair will release it", "ip", unused.name, "error", err)
		}
	}
	t.a.releaseAll(ctx, t.svc, nil, t.allocatedPorts)
}

// release releases the cluster IPs and node ports of a deleted service.
func (a *Allocator) release(ctx context.Context, svc *corev1.Service) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	core.DefaultOnRead(svc, a.families[0])
	a.releaseAll(ctx, svc, core.ReleasedClusterIPs(svc), core.ReleasedNodePorts(svc))
}

func (a *Allocator) releaseAll(ctx context.Context, svc *corev1.Service, ips []string, ports []int32) {
	for _, ip := range ips {
		if err := a.addresses.release(ctx, svc, ip); err != nil {
			a.log.Warn("failed to release cluster IP; repair will release it", "ip", ip, "service", svc.Namespace+"/"+svc.Name, "error", err)
		}
	}
	if len(ports) == 0 {
		return
	}
	if err := a.ports.release(ctx, ports); err != nil {
		a.log.Warn("failed to release node ports; repair will release them", "ports", ports, "service", svc.Namespace+"/"+svc.Name, "error", err)
	}
}
