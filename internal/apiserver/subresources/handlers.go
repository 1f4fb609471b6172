package apiserver

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// specialKey names a resource, or a subresource of one, that does something no other does.
type specialKey struct {
	resource    schema.GroupResource
	subresource string
}

// special handles all requests for what it is registered under.
type special func(*Request) error

// addSpecials connects what a few resources do beside the generic verbs.
func (s *Server) addSpecials() error {
	s.specials = map[specialKey]special{}
	s.endpoint("", "v1", "namespaces").Registry.Hooks = namespaceHooks()
	s.endpoint("scheduling.k8s.io", "v1", "priorityclasses").Registry.Hooks.BeforeDelete = keepSystemPriorities
	add := func(group, plural, subresource string, handle special) {
		s.specials[specialKey{schema.GroupResource{Group: group, Resource: plural}, subresource}] = handle
	}
	add("", "pods", "binding", s.bind)
	add("", "bindings", "", s.bind)
	add("", "pods", "eviction", s.evict)
	add("", "componentstatuses", "", s.componentStatuses(s.components(schedulerHealth, controllerManagerHealth)))
	add("authentication.k8s.io", "selfsubjectreviews", "", s.reviews(s.reviewSelf))
	add("authentication.k8s.io", "tokenreviews", "", s.reviews(s.reviewToken))
	add("authorization.k8s.io", "subjectaccessreviews", "", s.reviews(s.reviewAccess))
	add("authorization.k8s.io", "localsubjectaccessreviews", "", s.reviews(s.reviewLocalAccess))
	add("authorization.k8s.io", "selfsubjectaccessreviews", "", s.reviews(s.reviewOwnAccess))
	add("authorization.k8s.io", "selfsubjectrulesreviews", "", s.reviews(s.reviewOwnRules))
	add("", "serviceaccounts", "token", s.requestToken)
	s.guardDevices()
	s.guardPodCertificates()
	newConnector(s, s.opts.KubeletTLS).register(s.specials)
	return s.addServices()
}
