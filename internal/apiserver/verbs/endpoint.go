package apiserver

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/managedfields"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/response"
	"skiff/internal/cache"
	"skiff/internal/catalog"
)

// endpoint is a resource as it is served under one group version.
type endpoint struct {
	*response.Resource
	related []*catalog.Info // other resources that serve the same objects
	// returnsDeleted says that deleting answers with the object rather than a Status.
	returnsDeleted bool

	subresources map[string]bool
	traced       string            // the resource's name in traces
	tracedParts  map[string]string // and those of its subresources

	// mayWrite, if set, has the last word on who writes an object; old is nil for a new one.
	mayWrite func(rq *Request, obj, old catalog.Object) error

	mu       sync.Mutex
	managers map[string]*managedfields.Manager // by subresource, made when first needed
}

func newEndpoint(info *catalog.Info, reg *registry.Registry, hot *cache.Hot) *endpoint {
	e := &endpoint{Resource: response.NewResource(info, reg, hot), returnsDeleted: answersWithDeleted[info.GVR.GroupResource()],
		managers: map[string]*managedfields.Manager{}, subresources: map[string]bool{}, traced: info.GVR.GroupResource().String(), tracedParts: map[string]string{}}
	for _, sub := range subresourcesOf(info) {
		e.subresources[sub.Name] = true
		e.tracedParts[sub.Name] = e.traced + "/" + sub.Name
	}
	return e
}

// manager keeps the managed fields of writes through the resource ("") or a subresource.
func (e *endpoint) manager(subresource string) (*managedfields.Manager, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m := e.managers[subresource]; m != nil {
		return m, nil
	}
	m, err := managedfields.New(e.Info, subresource, e.related)
	if err != nil {
		return nil, err
	}
	e.managers[subresource] = m
	return m, nil
}

// edit finds a subresource that updates a part of the object; nil is the object itself.
func (e *endpoint) edit(subresource string) *catalog.EditInfo {
	for _, edit := range e.Info.Stored.Edits {
		if edit.Name == subresource {
			return edit
		}
	}
	return nil
}

// answersWithDeleted are the resources whose deletion answers with the object, as upstream has it.
var answersWithDeleted = map[schema.GroupResource]bool{
	{Resource: "namespaces"}: true, {Resource: "persistentvolumeclaims"}: true, {Resource: "persistentvolumes"}: true, {Resource: "pods"}: true,
	{Resource: "podtemplates"}: true, {Resource: "resourcequotas"}: true, {Resource: "serviceaccounts"}: true, {Resource: "services"}: true,
	{Group: "resource.k8s.io", Resource: "deviceclasses"}: true, {Group: "resource.k8s.io", Resource: "resourceclaims"}: true,
	{Group: "resource.k8s.io", Resource: "resourceclaimtemplates"}: true, {Group: "resource.k8s.io", Resource: "resourceslices"}: true,
	{Group: "storage.k8s.io", Resource: "csidrivers"}: true, {Group: "storage.k8s.io", Resource: "csinodes"}: true, {Group: "storage.k8s.io", Resource: "storageclasses"}: true,
	{Group: "storage.k8s.io", Resource: "volumeattachments"}: true, {Group: "storage.k8s.io", Resource: "volumeattributesclasses"}: true,
}
