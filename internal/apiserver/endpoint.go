package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/codec/transcode"
	"skiff/internal/apiserver/managedfields"
	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
	"skiff/internal/catalog"
)

// endpoint is a resource as it is served under one group version.
type endpoint struct {
	Info     *catalog.Info
	Registry *registry.Registry // of the resource that stores it; nil if virtual
	hot      *cache.Hot         // nil if derived forms are not kept
	related  []*catalog.Info    // other resources that serve the same objects
	// returnsDeleted says that deleting answers with the object rather than a Status.
	returnsDeleted bool

	plan                   func() (*transcode.Plan, error) // how stored messages become JSON; nil if they need the object
	subresources           map[string]bool
	traced                 string            // the resource's name in traces
	tracedParts            map[string]string // and those of its subresources
	envelope, listEnvelope []byte            // protobuf heads
	jsonHead, listHead     []byte            // JSON heads, each in place of the opening brace

	// mayWrite, if set, has the last word on who writes an object; old is nil for a new one.
	mayWrite func(rq *Request, obj, old catalog.Object) error

	mu       sync.Mutex
	managers map[string]*managedfields.Manager // by subresource, made when first needed
}

func newEndpoint(info *catalog.Info, reg *registry.Registry, hot *cache.Hot) *endpoint {
	list := info.GVK
	list.Kind += "List"
	e := &endpoint{Info: info, plan: sync.OnceValues(func() (*transcode.Plan, error) { return planFor(reflect.TypeOf(info.New()).Elem()) }), Registry: reg, hot: hot, returnsDeleted: answersWithDeleted[info.GVR.GroupResource()],
		envelope: codec.EnvelopeHead(info.GVK), listEnvelope: codec.EnvelopeHead(list),
		jsonHead: jsonHead(info.GVK), listHead: jsonHead(list), managers: map[string]*managedfields.Manager{}, subresources: map[string]bool{},
		traced: info.GVR.GroupResource().String(), tracedParts: map[string]string{}}
	for _, sub := range subresourcesOf(info) {
		e.subresources[sub.Name] = true
		e.tracedParts[sub.Name] = e.traced + "/" + sub.Name
	}
	return e
}

// planFor is how messages of a type become JSON. Those that hold whole objects of other kinds, as a StatefulSet holds claims, do not carry
// these kinds, which defaults restore: they take the way over the object.
func planFor(t reflect.Type) (*transcode.Plan, error) {
	if holdsKinds(t, 0) {
		return nil, nil
	}
	return transcode.Compile(t)
}

var typeMeta = reflect.TypeFor[metav1.TypeMeta]()

func holdsKinds(t reflect.Type, depth int) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return holdsKinds(t.Elem(), depth)
	case reflect.Struct:
		if depth > 0 && t == typeMeta {
			return true
		}
		const deepest = 12 // JSON schemas hold themselves
		for i := range t.NumField() {
			f := t.Field(i)
			if f.IsExported() && depth < deepest && !(depth == 0 && f.Type == typeMeta) && holdsKinds(f.Type, depth+1) {
				return true
			}
		}
	}
	return false
}

func jsonHead(gvk schema.GroupVersionKind) []byte {
	return fmt.Appendf(nil, `{"kind":%s,"apiVersion":%s,`, strconv.Quote(gvk.Kind), strconv.Quote(gvk.GroupVersion().String()))
}

// internalName is what upstream's messages call the kind.
func (e *endpoint) internalName() string { return codec.InternalName(e.Info.GVK) }

// plain reports whether objects are served as they are stored.
func (e *endpoint) plain() bool { return e.Info.Stored == e.Info }

// served decodes an item in the form it is served in.
func (e *endpoint) served(it *cache.Item) (catalog.Object, error) {
	obj, err := e.Registry.Object(it)
	if err != nil {
		return nil, err
	}
	return e.Info.FromStored(obj), nil
}

// json is an item as JSON without kind and apiVersion, kept while it is hot.
func (e *endpoint) json(it *cache.Item) ([]byte, error) {
	if !e.plain() {
		obj, err := e.served(it)
		if err != nil {
			return nil, err
		}
		return json.Marshal(obj)
	}
	plan, err := e.plan()
	if err != nil {
		return nil, err
	}
	var failure error
	b := it.Form(cache.JSON, e.hot, func() []byte {
		if plan == nil {
			obj, err := e.Registry.Codec.Object(it.Raw())
			if err != nil {
				failure = err
				return nil
			}
			b, err := json.Marshal(obj)
			failure = err
			return b
		}
		b := buffers.Get().(*[]byte)
		defer buffers.Put(b)
		*b, failure = plan.AppendJSON((*b)[:0], it.Raw())
		return bytes.Clone(*b)
	})
	return b, failure
}

// appendJSON appends an item's JSON, which is not kept.
func (e *endpoint) appendJSON(b []byte, it *cache.Item) ([]byte, error) {
	if e.plain() {
		plan, err := e.plan()
		if err != nil {
			return nil, err
		}
		if plan != nil {
			return plan.AppendJSON(b, it.Raw())
		}
	}
	body, err := e.json(it)
	return append(b, body...), err
}

// message is an item as a bare protobuf message.
func (e *endpoint) message(it *cache.Item) ([]byte, error) {
	if e.plain() {
		return it.Raw(), nil
	}
	obj, err := e.served(it)
	if err != nil {
		return nil, err
	}
	return obj.Marshal()
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
