package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/client"
	"skiff/internal/network/proxy/model"
)

// selector excludes Services of another service proxy and headless ones; their EndpointSlices have the same labels.
const selector = "!" + proxyNameLabel + ",!" + corev1.IsHeadlessService

const proxyNameLabel = "service.kubernetes.io/service-proxy-name"

// feed passes the events of informers to the tracker.
type feed struct {
	p      *Proxy
	all    []informers.SharedInformerFactory
	nodes  cache.SharedIndexInformer
	ranges cache.SharedIndexInformer
	synced []cache.DoneChecker
}

func (p *Proxy) newFeed() *feed {
	f := &feed{p: p}
	of := func(selectWhat func(*metav1.ListOptions)) informers.SharedInformerFactory {
		factory := p.o.Client.Informers(client.InformerOptions{Select: selectWhat})
		f.all = append(f.all, factory)
		return factory
	}
	f.nodes = of(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", p.o.NodeName).String()
	}).Core().V1().Nodes().Informer()
	return f
}

// findNodeIPs waits until the Node has addresses, unless Options.NodeIPs has some.
func (p *Proxy) findNodeIPs(ctx context.Context, f *feed) error {
	f.all[0].Start(ctx.Done())
	if !cache.WaitFor(ctx, "", f.nodes.HasSyncedChecker()) {
		return errors.New("failed to read the Node: its informer did not sync")
	}
	for logged := false; len(p.o.NodeIPs) == 0; {
		if object, found, err := f.nodes.GetStore().GetByKey(p.o.NodeName); err == nil && found {
			p.o.NodeIPs = addressesOf(object.(*corev1.Node))
		}
		if len(p.o.NodeIPs) > 0 {
			break
		}
		if !logged {
			p.o.Log.Info("service proxy waits until its Node has an address", "node", p.o.NodeName)
			logged = true
		}
		if !sleep(ctx, 250*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

func addressesOf(n *corev1.Node) []netip.Addr {
	var out []netip.Addr
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range n.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if a.Type != kind || err != nil {
				continue
			}
			ip = ip.Unmap()
			if !slices.ContainsFunc(out, func(b netip.Addr) bool { return model.FamilyOf(b) == model.FamilyOf(ip) }) {
				out = append(out, ip)
			}
		}
	}
	return out
}

// start starts the informers, and returns when they have synced.
func (f *feed) start(ctx context.Context) error {
	p := f.p
	objects := p.o.Client.Informers(client.InformerOptions{Select: func(o *metav1.ListOptions) { o.LabelSelector = selector }})
	ranges := p.o.Client.Informers(client.InformerOptions{})
	f.all = append(f.all, objects, ranges)
	services, endpoints := objects.Core().V1().Services().Informer(), objects.Discovery().V1().EndpointSlices().Informer()
	f.ranges = ranges.Networking().V1().ServiceCIDRs().Informer()
	if p.o.Standalone {
		s := newSlimmer()
		if err := errors.Join(services.SetTransform(s.service), endpoints.SetTransform(s.slice)); err != nil {
			return err
		}
	}
	for _, w := range []struct {
		informer cache.SharedIndexInformer
		set      func(before, now any)
		deleted  func(any)
	}{
		{services, f.setService, func(o any) {
			if s, ok := o.(*corev1.Service); ok {
				p.tracker.DeleteService(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
				p.metrics.serviceChanges.Inc()
			}
		}},
		{endpoints, f.setSlice, func(o any) {
			if s, ok := o.(*discoveryv1.EndpointSlice); ok {
				p.tracker.DeleteSlice(s)
				p.metrics.endpointChanges.Inc()
			}
		}},
		{f.nodes, f.setNode, func(any) { p.health.SetNode(nil) }},
		{f.ranges, f.setRanges, func(any) { f.setRanges(nil, nil) }},
	} {
		registration, err := w.informer.AddEventHandler(f.handler(w.set, w.deleted))
		if err != nil {
			return err
		}
		f.synced = append(f.synced, registration.HasSyncedChecker())
	}
	for _, factory := range f.all {
		factory.Start(ctx.Done())
	}
	if !cache.WaitFor(ctx, "", f.synced...) {
		return fmt.Errorf("failed to read Services and EndpointSlices: %w", ctx.Err())
	}
	return nil
}

// stop waits for the informers to end.
func (f *feed) stop() {
	for _, factory := range f.all {
		factory.Shutdown()
	}
}

func (f *feed) handler(set func(before, now any), deleted func(any)) cache.ResourceEventHandler {
	p := f.p
	then := func(do func()) {
		p.mu.Lock()
		defer p.mu.Unlock()
		do()
		if p.tracker.Pending() {
			p.health.Queued()
			p.metrics.queued.SetToCurrentTime()
			p.signal()
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initially bool) {
			then(func() {
				set(nil, o)
				if !initially {
					p.expect(o)
				}
			})
		},
		UpdateFunc: func(before, now any) {
			then(func() {
				set(before, now)
				p.expect(now)
			})
		},
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			then(func() { deleted(o) })
		},
	}
}

func (f *feed) setService(_, now any) {
	f.p.tracker.SetService(now.(*corev1.Service))
	f.p.metrics.serviceChanges.Inc()
	f.p.metrics.servicesPending.Inc()
}

func (f *feed) setSlice(before, now any) {
	was, _ := before.(*discoveryv1.EndpointSlice)
	f.p.tracker.SetSlice(was, now.(*discoveryv1.EndpointSlice))
	f.p.metrics.endpointChanges.Inc()
	f.p.metrics.endpointsPending.Inc()
}

func (f *feed) setNode(_, now any) {
	node := now.(*corev1.Node)
	f.p.tracker.SetNode(node.Labels)
	f.p.health.SetNode(node)
}

// setRanges sets the ranges of cluster IPs from all ServiceCIDRs.
func (f *feed) setRanges(_, _ any) {
	var all []netip.Prefix
	for _, o := range f.ranges.GetStore().List() {
		for _, s := range o.(*networkingv1.ServiceCIDR).Spec.CIDRs {
			if p, err := netip.ParsePrefix(s); err == nil {
				all = append(all, p.Masked())
			}
		}
	}
	f.p.tracker.SetServiceCIDRs(slices.Compact(all))
}

// expect records a change that report is called for once it is in effect. p.mu must be held.
func (p *Proxy) expect(object any) {
	switch object.(type) {
	case *corev1.Service, *discoveryv1.EndpointSlice:
		if len(p.unreported) < maxUnreported {
			p.unreported = append(p.unreported, observedChange{object.(metav1.Object), time.Now()})
		}
	}
}
