package apiserver

import (
	"context"

	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/service"
	"skiff/internal/catalog"
)

// addHooks adds the hooks of all resources to their registries, in the order in which they are called. Hooks are for what needs another part of the
// server: everything else that is particular about a kind is in its declaration in the catalog, and checks of who may write are in package guards.
func (s *Server) addHooks(allocator *service.Allocator) {
	s.api.Endpoint("", "v1", "services").Registry.AddHooks(allocator.Hooks())
	for _, end := range s.api.Served().Endpoints {
		if end.Info.EndsTokens {
			end.Registry.AddHooks(registry.Hooks{AfterDelete: s.waitForCaches})
		}
	}
}

// waitForCaches has a deletion that ends tokens wait until the caches, which say whether what a token is bound to exists, know of it. So the very next
// request with such a token is refused.
func (s *Server) waitForCaches(ctx context.Context, _ catalog.Object) {
	_ = s.feed.Fresh(ctx) // the object is deleted, whatever becomes of the wait
}
