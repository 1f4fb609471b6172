package verbs

import (
	"sort"
	"sync"

	"skiff/internal/apiserver/flowcontrol"
	"skiff/internal/apiserver/managedfields"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/response"
	"skiff/internal/cache"
	"skiff/internal/catalog"
)

// Endpoint is a resource as it is served under one group version.
type Endpoint struct {
	*response.Resource
	Related []*catalog.Info // other resources that serve the same objects

	Subresources map[string]bool   // the names of all subresources
	Traced       string            // what traces call the resource: see API.TraceName
	tracedParts  map[string]string // what traces call its subresources, by name

	// Since is the revision before which a watch cannot begin: then there was another resource of the name, whose definition was deleted. 0 if that is not known.
	Since int64

	// Watchers are the watches that are open.
	Watchers flowcontrol.Watchers

	// WriteGuards have the last word, in order, on whether an object may be written.
	WriteGuards []WriteGuard

	mu       sync.Mutex
	managers map[string]*managedfields.Manager // by subresource, made when first needed
}

// WriteGuard refuses a write that its user may not make; old is nil for a new object. It is asked after mutating admission and before validation.
type WriteGuard func(rq *Request, obj, old catalog.Object) error

// NewEndpoint returns the endpoint of a resource. reg is nil if nothing of it is stored; hot is nil if encoded forms are not kept.
func NewEndpoint(info *catalog.Info, reg *registry.Registry, hot *cache.Hot) *Endpoint {
	e := &Endpoint{Resource: response.NewResource(info, reg, hot),
		managers: map[string]*managedfields.Manager{}, Subresources: map[string]bool{}, Traced: info.GVR.GroupResource().String(), tracedParts: map[string]string{}}
	for _, sub := range SubresourcesOf(info) {
		e.Subresources[sub.Name] = true
		e.tracedParts[sub.Name] = e.Traced + "/" + sub.Name
	}
	return e
}

// Manager returns what keeps the managedFields of writes through the resource ("") or one of its subresources.
func (e *Endpoint) Manager(subresource string) (*managedfields.Manager, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m := e.managers[subresource]; m != nil {
		return m, nil
	}
	m, err := managedfields.New(e.Info, subresource, e.Related)
	if err != nil {
		return nil, err
	}
	e.managers[subresource] = m
	return m, nil
}

// Edit returns the declaration of a subresource that updates a part of the object; nil if there is none of that name.
func (e *Endpoint) Edit(subresource string) *catalog.EditInfo {
	for _, edit := range e.Info.Stored.Edits {
		if edit.Name == subresource {
			return edit
		}
	}
	return nil
}

// SubresourcesOf returns all subresources of a resource, sorted by name.
func SubresourcesOf(info *catalog.Info) []catalog.Subresource {
	subs := append([]catalog.Subresource(nil), info.Stored.Subresources...)
	for _, e := range info.Stored.Edits {
		subs = append(subs, catalog.Subresource{Name: e.Name, Kind: info.GVK.Kind, Verbs: e.Verbs})
	}
	if info.Stored.Scale != nil {
		subs = append(subs, catalog.Subresource{Name: "scale", Kind: "Scale", Group: "autoscaling", Version: "v1", Verbs: []string{"get", "patch", "update"}})
	}
	sort.Slice(subs, func(i, j int) bool { return subs[i].Name < subs[j].Name })
	return subs
}
