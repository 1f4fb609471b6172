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
	"skiff/internal/catalog"
)

// addServices lets services have cluster IPs and node ports.
func (s *Server) addServices() error {
	addresses, cidrs := s.endpoint("networking.k8s.io", "v1", "ipaddresses"), s.endpoint("networking.k8s.io", "v1", "servicecidrs")
	services := s.endpoint("", "v1", "services").registry
	allocator, err := service.New(service.Options{Services: services, IPAddresses: addresses.registry, ServiceCIDRs: cidrs.registry,
		Store: s.opts.Store, Prefix: s.opts.EtcdPrefix, AsJSON: s.opts.StorageJSON, CIDRs: s.opts.ServiceCIDRs, NodePorts: s.opts.NodePortRange, Log: s.opts.Log,
		Manage: func(obj catalog.Object) {
			if manager, err := addresses.manager(""); err == nil {
				manager.Create(obj, "kube-apiserver")
			}
		}})
	if err != nil {
		return err
	}
	services.Hooks = allocator.Hooks()
	s.background.Go(func() {
		if s.WaitReady(s.stopping) == nil {
			allocator.Run(s.stopping)
		}
	})
	return nil
}

// announceServiceCIDR says of the default ServiceCIDR that it is ready, if nobody has judged it and it is the one this server was
// started with.
func (s *Server) announceServiceCIDR(ctx context.Context) {
	cidrs := s.endpoint("networking.k8s.io", "v1", "servicecidrs")
	_, _, err := cidrs.registry.Update(ctx, registry.Update{Name: service.DefaultCIDR, Edit: cidrs.info.Status, Write: ownWrite(),
		Transform: func(_ context.Context, current catalog.Object) (catalog.Object, error) {
			c := current.(*networkingv1.ServiceCIDR)
			judged := apimeta.FindStatusCondition(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
			if judged != nil && judged.Status != metav1.ConditionUnknown || c.DeletionTimestamp != nil || !slices.Equal(c.Spec.CIDRs, s.opts.ServiceCIDRs) {
				return c, nil
			}
			manager, err := cidrs.manager("status")
			if err != nil {
				return nil, err
			}
			return manager.Apply(c, readyCIDR(time.Now()), "kubernetes-service-cidr-controller", true)
		}})
	if err != nil && ctx.Err() == nil {
		s.opts.Log.Warn("the default ServiceCIDR could not be said to be ready", "error", err)
	}
}

func readyCIDR(now time.Time) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": map[string]any{"name": service.DefaultCIDR},
		"status": map[string]any{"conditions": []any{map[string]any{"type": networkingv1.ServiceCIDRConditionReady, "status": string(metav1.ConditionTrue),
			"message": "Kubernetes default Service CIDR is ready", "lastTransitionTime": now.UTC().Format(time.RFC3339)}}},
	}}
}
