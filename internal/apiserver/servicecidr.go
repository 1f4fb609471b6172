package apiserver

import (
	"context"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/service"
	"skiff/internal/cache"
	"skiff/internal/catalog"
)

// addServices sets up the allocation of cluster IPs and node ports, and the loops that repair them.
func (s *Server) addServices() error {
	addresses, cidrs := s.api.Endpoint("networking.k8s.io", "v1", "ipaddresses"), s.api.Endpoint("networking.k8s.io", "v1", "servicecidrs")
	services := s.api.Endpoint("", "v1", "services").Registry
	allocator, err := service.New(service.Options{Services: services, IPAddresses: addresses.Registry, ServiceCIDRs: cidrs.Registry,
		Store: s.opts.Store, Prefix: s.opts.EtcdPrefix, AsJSON: s.opts.StorageJSON, CIDRs: s.opts.ServiceCIDRs, NodePorts: s.opts.NodePortRange, Log: s.opts.Log,
		Manage: func(obj catalog.Object) {
			if manager, err := addresses.Manager(""); err == nil {
				manager.Create(obj, "kube-apiserver")
			}
		}})
	if err != nil {
		return err
	}
	s.addHooks(allocator)
	s.background.Go(func() {
		if s.WaitReady(s.stopping) == nil {
			allocator.Run(s.stopping)
		}
	})
	s.background.Go(func() {
		if s.WaitReady(s.stopping) == nil {
			s.keepServiceCIDR(s.stopping)
		}
	})
	return nil
}

// serviceCIDREvery is how often the default ServiceCIDR is reconciled, as upstream.
const serviceCIDREvery = 10 * time.Second

// defaultServiceCIDR returns the ServiceCIDR with the ranges that this server was started with.
func (s *Server) defaultServiceCIDR() *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: service.DefaultCIDR}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: s.opts.ServiceCIDRs}}
}

// keepServiceCIDR reconciles the default ServiceCIDR each serviceCIDREvery, until ctx ends.
func (s *Server) keepServiceCIDR(ctx context.Context) {
	ticker := time.NewTicker(serviceCIDREvery)
	defer ticker.Stop()
	cidrs := s.api.Endpoint("networking.k8s.io", "v1", "servicecidrs").Registry.Cache
	var inSync *cache.Item // an object in which there was nothing to do is not decoded again until it changes
	for {
		if it := cidrs.Get(service.DefaultCIDR); it == nil || it != inSync {
			if s.syncServiceCIDR(ctx) {
				inSync = it
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// syncServiceCIDR creates the default ServiceCIDR if it is missing, makes it dual-stack if the server is, and marks it ready. It reports whether there was nothing to do.
func (s *Server) syncServiceCIDR(ctx context.Context) (inSync bool) {
	cidrs := s.api.Endpoint("networking.k8s.io", "v1", "servicecidrs")
	it := cidrs.Registry.Cache.Get(service.DefaultCIDR)
	if it == nil {
		s.ensureObject(ctx, s.defaultServiceCIDR())
		s.markServiceCIDRReady(ctx)
		return false
	}
	obj, err := cidrs.Registry.Decode(it)
	if err != nil {
		s.opts.Log.Warn("failed to read the default ServiceCIDR", "err", err)
		return false
	}
	c := obj.(*networkingv1.ServiceCIDR)
	switch want := s.opts.ServiceCIDRs; {
	case len(want) == 2 && len(c.Spec.CIDRs) == 1 && want[0] == c.Spec.CIDRs[0]:
		err = s.loopback.Update(ctx, cidrs.Info.GVR.GroupResource(), "", "", service.DefaultCIDR, func(obj catalog.Object) error {
			obj.(*networkingv1.ServiceCIDR).Spec.CIDRs = want
			return nil
		})
		if err != nil && ctx.Err() == nil {
			s.opts.Log.Warn("failed to make the default ServiceCIDR dual-stack", "from", c.Spec.CIDRs, "to", want, "err", err)
		}
	case s.awaitsReady(c):
		s.markServiceCIDRReady(ctx)
	default:
		return true
	}
	return false
}

// awaitsReady reports whether the default ServiceCIDR has the ranges that this server was started with, and no condition Ready yet.
func (s *Server) awaitsReady(c *networkingv1.ServiceCIDR) bool {
	judged := apimeta.FindStatusCondition(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	return (judged == nil || judged.Status == metav1.ConditionUnknown) && c.DeletionTimestamp == nil && slices.Equal(c.Spec.CIDRs, s.opts.ServiceCIDRs)
}

// markServiceCIDRReady sets the condition Ready of the default ServiceCIDR if it awaits that.
func (s *Server) markServiceCIDRReady(ctx context.Context) {
	cidrs := s.api.Endpoint("networking.k8s.io", "v1", "servicecidrs")
	if it := cidrs.Registry.Cache.Get(service.DefaultCIDR); it != nil { // an update that changes nothing is a write if the object is stored in another encoding
		if obj, err := cidrs.Registry.Decode(it); err == nil && !s.awaitsReady(obj.(*networkingv1.ServiceCIDR)) {
			return
		}
	}
	_, _, err := cidrs.Registry.Update(ctx, registry.Update{Name: service.DefaultCIDR, Edit: cidrs.Info.Status, Write: loopbackWrite(),
		Transform: func(_ context.Context, current catalog.Object) (catalog.Object, error) {
			c := current.(*networkingv1.ServiceCIDR)
			if !s.awaitsReady(c) {
				return c, nil
			}
			manager, err := cidrs.Manager("status")
			if err != nil {
				return nil, err
			}
			return manager.Apply(c, readyCIDR(time.Now()), "kubernetes-service-cidr-controller", true)
		}})
	if err != nil && ctx.Err() == nil {
		s.opts.Log.Warn("failed to mark the default ServiceCIDR ready", "error", err)
	}
}

func readyCIDR(now time.Time) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": map[string]any{"name": service.DefaultCIDR},
		"status": map[string]any{"conditions": []any{map[string]any{"type": networkingv1.ServiceCIDRConditionReady, "status": string(metav1.ConditionTrue),
			"message": "Kubernetes default Service CIDR is ready", "lastTransitionTime": now.UTC().Format(time.RFC3339)}}},
	}}
}
