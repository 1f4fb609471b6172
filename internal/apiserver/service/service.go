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

// Options of an Allocator. Those without a comment on what they default to are required.
type Options struct {
	Services, IPAddresses, ServiceCIDRs *registry.Registry

	Store     store.Store
	Prefix    string   // of all keys: /registry
	AsJSON    bool     // store readable JSON
	CIDRs     []string // of the default ServiceCIDR, that of the primary family first
	NodePorts string   // 30000-32767

	// Manage, if set, is given every IPAddress that is to be created, to note who manages its fields.
	Manage func(catalog.Object)
	Clock  clock.PassiveClock // the real one if nil
	Log    *slog.Logger       // the default one if nil
}

// Allocator gives out cluster IPs and node ports.
type Allocator struct {
	services  *registry.Registry
	families  []corev1.IPFamily // of the cluster, the primary first
	addresses *addresses
	ports     *ports
	clock     clock.PassiveClock
	log       *slog.Logger
}

// New returns an allocator. It touches nothing before it is used.
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
		return nil, fmt.Errorf("the range of node ports %q is not usable: want two ports like 30000-32767: %w", o.NodePorts, err)
	}
	a := &Allocator{services: o.Services, clock: o.Clock, log: o.Log}
	for _, cidr := range o.CIDRs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("the range of cluster IPs %q is not usable: %w", cidr, err)
		}
		a.families = append(a.families, familyOf(prefix.Addr()))
	}
	if len(a.families) == 0 {
		return nil, errors.New("no range of cluster IPs is given")
	}
	a.addresses = &addresses{registry: o.IPAddresses, cidrs: o.ServiceCIDRs, manage: o.Manage, clock: o.Clock}
	a.ports = newPorts(o, *nodePorts, a.nodePortsInUse)
	return a, nil
}

// Hooks are what the registry of services is to call.
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

// releaseWithin bounds how long giving back may take after a request is over.
const releaseWithin = 10 * time.Second

// begin takes what a service needs that is to be created (old is nil) or updated.
func (a *Allocator) begin(ctx context.Context, svc, old *corev1.Service, dryRun bool) (func(stored bool), error) {
	if errs := core.PrepareAllocation(svc, old, a.families); len(errs) > 0 {
		return nil, apierrors.NewInvalid(serviceKind, svc.Name, errs)
	}
	t := &transaction{a: a, ctx: ctx, svc: svc, dryRun: dryRun}
	err := t.takeAddresses(old)
	if err == nil {
		err = t.takePorts(old)
	}
	if err != nil {
		t.finish(false)
		return nil, err
	}
	return t.finish, nil
}

// transaction is what one request has taken, which goes back if it fails, and what it no longer needs, which goes back if it succeeds.
type transaction struct {
	a      *Allocator
	ctx    context.Context
	svc    *corev1.Service
	dryRun bool

	taken       []taken // cluster IPs
	unneeded    []string
	takenPorts  []int32
	unusedPorts []int32
}

func (t *transaction) takeAddresses(old *corev1.Service) error {
	claims, unneeded := core.ClusterIPClaims(t.svc, old)
	t.unneeded = unneeded
	for i, c := range claims {
		address, err := t.takeAddress(c)
		if err != nil {
			// The client is shown a place for each family, as upstream does.
			for _, open := range claims[i:] {
				core.SetClusterIP(t.svc, open, open.IP)
			}
			return t.addressFailure(c, err)
		}
		core.SetClusterIP(t.svc, c, address)
	}
	return nil
}

// takeAddress returns the address in the spelling it is to have in the service: the client's, if it chose it.
func (t *transaction) takeAddress(c core.IPClaim) (string, error) {
	addresses := t.a.addresses
	if t.dryRun {
		return addresses.pretend(t.ctx, c)
	}
	got, err := addresses.take(t.ctx, t.svc, c)
	if err != nil {
		return "", err
	}
	t.taken = append(t.taken, got)
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

func (t *transaction) takePorts(old *corev1.Service) error {
	var failure, reason error
	ports, health := slices.Clone(t.svc.Spec.Ports), t.svc.Spec.HealthCheckNodePort
	err := t.a.ports.allocate(t.ctx, t.dryRun, func(p pool) error {
		t.svc.Spec.Ports, t.svc.Spec.HealthCheckNodePort = slices.Clone(ports), health // it may be tried more than once
		failure = core.AllocateNodePorts(t.svc, old, p)
		t.takenPorts, t.unusedPorts, reason = p.result()
		return failure
	})
	if err == nil {
		return nil
	}
	t.takenPorts = nil // nothing was written
	var invalid *field.Error
	switch {
	case failure == nil:
		return err // the store's
	case errors.As(err, &invalid):
		return apierrors.NewInvalid(serviceKind, t.svc.Name, field.ErrorList{invalid})
	case reason != nil:
		return apierrors.NewInternalError(err)
	}
	return err
}

// finish is called when the service has been stored, or has not.
func (t *transaction) finish(stored bool) {
	if t.dryRun {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), releaseWithin)
	defer cancel()
	if stored {
		t.a.giveBack(ctx, t.svc, t.unneeded, t.unusedPorts)
		return
	}
	for _, taken := range t.taken {
		if err := t.a.addresses.undo(ctx, taken); err != nil {
			t.a.log.Warn("a cluster IP that was not used could not be given back; repair will do it", "ip", taken.name, "error", err)
		}
	}
	t.a.giveBack(ctx, t.svc, nil, t.takenPorts)
}

// release gives back all that a deleted service had.
func (a *Allocator) release(ctx context.Context, svc *corev1.Service) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	core.DefaultOnRead(svc, a.families[0])
	a.giveBack(ctx, svc, core.ReleasedClusterIPs(svc), core.ReleasedNodePorts(svc))
}

func (a *Allocator) giveBack(ctx context.Context, svc *corev1.Service, ips []string, ports []int32) {
	for _, ip := range ips {
		if err := a.addresses.release(ctx, svc, ip); err != nil {
			a.log.Warn("a cluster IP could not be given back; repair will do it", "ip", ip, "service", svc.Namespace+"/"+svc.Name, "error", err)
		}
	}
	if len(ports) == 0 {
		return
	}
	if err := a.ports.release(ctx, ports); err != nil {
		a.log.Warn("node ports could not be given back; repair will do it", "ports", ports, "service", svc.Namespace+"/"+svc.Name, "error", err)
	}
}
