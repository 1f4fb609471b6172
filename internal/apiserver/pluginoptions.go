package apiserver

import (
	"context"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission/ownerreferencespermissionenforcement"
	"skiff/internal/apiserver/admission/plugins"
	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/client"
)

// pluginOptions returns what admission plugins need of the server.
func (s *Server) pluginOptions(authorizer authz.Authorizer) plugins.Options {
	return plugins.Options{Authorizer: authorizer, Tolerations: *s.opts.Tolerations, ConfigFile: s.opts.AdmissionConfigFile, Metrics: s.api.Metrics.Registry,
		Policies: s.policyOptions(), Usage: s.usageHistory(), InitialResources: *s.opts.InitialResources, CreateNamespace: s.namespaceCreator(), Mapper: s.resourcesOf, Dial: s.opts.Dial,
		Stopping: s.stopping, Log: s.opts.Log}
}

// namespaceCreator returns what creates a namespace by a request of the server's own, through its whole chain. Its client is made when it is called first.
func (s *Server) namespaceCreator() func(context.Context, *corev1.Namespace) error {
	connect := sync.OnceValues(func() (*client.Client, error) {
		return client.ForServer(s, client.Identity{Component: "kube-apiserver", User: "system:apiserver", Groups: []string{authn.SystemMasters}})
	})
	return func(ctx context.Context, namespace *corev1.Namespace) error {
		c, err := connect()
		if err != nil {
			return err
		}
		_, err = c.Kubernetes().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		return err
	}
}

// resourcesOf returns the resources that serve a kind, here or by another server. The kind may be in lower case, as REST mappers of clients have it.
func (s *Server) resourcesOf(kind schema.GroupVersionKind) (found []ownerreferencespermissionenforcement.Resource) {
	is := func(name string) bool { return name == kind.Kind || strings.ToLower(name) == kind.Kind }
	for _, info := range s.api.Served().Infos {
		if info.GVR.GroupVersion() == kind.GroupVersion() && is(info.GVK.Kind) {
			found = append(found, ownerreferencespermissionenforcement.Resource{GroupVersionResource: info.GVR, Namespaced: info.Namespaced})
		}
	}
	for _, version := range s.aggregation.Discovered() {
		if version.GroupVersion != kind.GroupVersion() {
			continue
		}
		for _, r := range version.Discovery.Resources {
			if r.ResponseKind != nil && is(r.ResponseKind.Kind) {
				found = append(found, ownerreferencespermissionenforcement.Resource{GroupVersionResource: version.WithResource(r.Resource), Namespaced: string(r.Scope) == "Namespaced"})
			}
		}
	}
	return found
}
