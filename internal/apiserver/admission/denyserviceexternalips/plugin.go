package denyserviceexternalips

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission"
)

// New returns the plugin.
func New() admission.Plugin { return plugin{} }

type plugin struct{}

var services = corev1.Resource("services")

func (plugin) Name() string { return "DenyServiceExternalIPs" }

func (plugin) Handles(a *admission.Attributes) bool {
	return a.Is(services) && a.Subresource == "" && (a.Operation == admission.Create || a.Operation == admission.Update)
}

// Validate refuses a Service with an external IP that it did not have before.
func (plugin) Validate(_ context.Context, a *admission.Attributes) error {
	service, ok := a.Object.(*corev1.Service)
	if !ok {
		return nil
	}
	var allowed []string
	if old, ok := a.Old.(*corev1.Service); ok {
		allowed = old.Spec.ExternalIPs
	}
	for _, ip := range service.Spec.ExternalIPs {
		if !slices.Contains(allowed, ip) {
			return a.Forbidden(errors.New("Use of external IPs is denied by admission control"))
		}
	}
	return nil
}
