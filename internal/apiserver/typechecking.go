package apiserver

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission/policy/typecheck"
)

// checkPolicyTypes checks the types of the expressions of ValidatingAdmissionPolicies from when the server is ready until it stops.
func (s *Server) checkPolicyTypes() {
	loop := typecheck.NewLoop(s.loopback, typecheck.Served(s.resources, s.openAPIDocument), s.opts.Log)
	s.background.Go(func() {
		if s.WaitReady(s.stopping) == nil {
			loop.Run(s.stopping)
		}
	})
}

// resources calls yield with the names and the kind of each resource that is served now, here or by another server, until it returns false.
func (s *Server) resources(yield func(schema.GroupVersionResource, schema.GroupVersionKind) bool) {
	for name, kind := range typecheck.Resources(s.api.Served().Infos) {
		if !yield(name, kind) {
			return
		}
	}
	for _, version := range s.aggregation.Discovered() {
		for _, r := range version.Discovery.Resources {
			if r.ResponseKind == nil {
				continue
			}
			kind := version.WithKind(r.ResponseKind.Kind)
			if !yield(version.WithResource(r.Resource), kind) || !yield(version.WithResource(r.SingularResource), kind) {
				return
			}
		}
	}
}

// openAPIDocument returns the OpenAPI v3 document of a path such as "apis/example.com/v1" as it is now.
func (s *Server) openAPIDocument(path string) ([]byte, error) { return s.openAPI.JSON(path) }
