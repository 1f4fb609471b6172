package apiserver

import (
	"context"
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/registry"
	"skiff/internal/catalog"
)

// creations are the objects of a custom resource that are being created. Once the definition is being deleted no other begins, so that an object that
// admission held up is not stored when all others are gone: nobody would delete it, and the next definition of the name would have it.
type creations struct {
	mu     sync.Mutex
	count  int
	closed bool
}

// hooks counts the creations of a registry.
func (c *creations) hooks(refuse func(catalog.Object) error) registry.Hooks {
	return registry.Hooks{BeginCreate: func(ctx context.Context, obj catalog.Object, _ bool) (func(bool), error) {
		if !c.begin() {
			return nil, refuse(obj)
		}
		end := sync.OnceFunc(c.end)
		context.AfterFunc(ctx, end) // of a creation whose outcome is unknown nothing else tells
		return func(bool) { end() }, nil
	}}
}

// refuseCreation returns the error of a creation that comes too late.
func refuseCreation(info *catalog.Info) func(catalog.Object) error {
	return func(obj catalog.Object) error {
		return apierrors.NewForbidden(info.GVR.GroupResource(), obj.GetName(), errors.New("create not allowed while custom resource definition is terminating"))
	}
}

func (c *creations) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.count++
	return true
}

func (c *creations) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count--
}

// close lets no other creation begin, and returns how many have not ended.
func (c *creations) close() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return c.count
}
