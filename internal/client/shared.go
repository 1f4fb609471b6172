package client

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// sharedReads knows which resources a server in this process shares.
type sharedReads struct {
	view      View
	kinds     map[schema.GroupVersionResource]schema.GroupVersionKind
	resources map[schema.GroupVersionKind]schema.GroupVersionResource
}

func newSharedReads(view View) *sharedReads {
	s := &sharedReads{view: view, kinds: view.Kinds(), resources: map[schema.GroupVersionKind]schema.GroupVersionResource{}}
	for resource, kind := range s.kinds {
		s.resources[kind] = resource
	}
	return s
}

// resourceOf returns the shared resource of a Go type, if there is one.
func (s *sharedReads) resourceOf(obj runtime.Object) (schema.GroupVersionResource, bool) {
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionResource{}, false
	}
	for _, kind := range kinds {
		if resource, ok := s.resources[kind]; ok {
			return resource, true
		}
	}
	return schema.GroupVersionResource{}, false
}

// sharedFactory creates informers that hold the server's shared objects. Resources that the server does not share get the same informers as
// over HTTPS.
type sharedFactory struct {
	informers.SharedInformerFactory
	reads   *sharedReads
	options InformerOptions
}

// InformerFor returns the informer of a type, creating it if there is none yet.
func (f *sharedFactory) InformerFor(obj runtime.Object, remote internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	resource, shared := f.reads.resourceOf(obj)
	if !shared {
		return f.SharedInformerFactory.InformerFor(obj, remote)
	}
	return f.SharedInformerFactory.InformerFor(obj, func(_ kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		source := &sharedListerWatcher{view: f.reads.view, what: Shared{Resource: resource, Namespace: f.options.Namespace}, tweak: f.options.Select}
		return copyingTransform{cache.NewSharedIndexInformerWithOptions(source, obj, cache.SharedIndexInformerOptions{
			ResyncPeriod: resync,
			Indexers:     cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
			Identifier:   f.InformerName().WithResource(resource),
		})}
	})
}

// ForResource returns the informer of a resource.
func (f *sharedFactory) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	if kind, shared := f.reads.kinds[resource]; shared {
		if obj, err := scheme.Scheme.New(kind); err == nil {
			// Once it exists, the embedded factory finds it.
			f.InformerFor(obj, nil)
		}
	}
	return f.SharedInformerFactory.ForResource(resource)
}

// copyingTransform is an informer of shared objects that passes copies to its transform, which may change them.
type copyingTransform struct{ cache.SharedIndexInformer }

// SetTransform implements cache.SharedInformer.
func (c copyingTransform) SetTransform(transform cache.TransformFunc) error {
	if transform == nil {
		return c.SharedIndexInformer.SetTransform(nil)
	}
	return c.SharedIndexInformer.SetTransform(func(obj any) (any, error) {
		if shared, ok := obj.(runtime.Object); ok {
			obj = shared.DeepCopyObject()
		}
		return transform(obj)
	})
}

// sharedListerWatcher lists and watches shared objects for an informer.
type sharedListerWatcher struct {
	view  View
	what  Shared
	tweak func(*metav1.ListOptions)
}

// ListWithContext implements cache.ListerWatcherWithContext.
func (s *sharedListerWatcher) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	items, meta, err := s.view.List(ctx, s.what, s.selected(opts))
	if err != nil {
		return nil, err
	}
	return &sharedList{ListMeta: meta, Items: items}, nil
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (s *sharedListerWatcher) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return s.view.Watch(ctx, s.what, s.selected(opts))
}

// List implements cache.ListerWatcher.
func (s *sharedListerWatcher) List(opts metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), opts)
}

// Watch implements cache.ListerWatcher.
func (s *sharedListerWatcher) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), opts)
}

func (s *sharedListerWatcher) selected(opts metav1.ListOptions) metav1.ListOptions {
	if s.tweak != nil {
		s.tweak(&opts)
	}
	return opts
}

// sharedList is a list of any kind whose items are not copied.
type sharedList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

// DeepCopyObject implements runtime.Object.
func (l *sharedList) DeepCopyObject() runtime.Object {
	c := &sharedList{TypeMeta: l.TypeMeta, Items: make([]runtime.Object, len(l.Items))}
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	for i, item := range l.Items {
		c.Items[i] = item.DeepCopyObject()
	}
	return c
}

// sharedMetadata is the metadata client of metadata informers: the metadata that it lists and watches is shared with the decoded objects, if there
// are any.
type sharedMetadata struct {
	metadata.Interface
	reads *sharedReads
}

// Resource implements metadata.Interface.
func (m sharedMetadata) Resource(resource schema.GroupVersionResource) metadata.Getter {
	remote := m.Interface.Resource(resource)
	if !m.reads.view.Shares(resource) {
		return remote
	}
	return sharedMetadataResource{ResourceInterface: remote, getter: remote, reads: m.reads, what: Shared{Resource: resource, MetadataOnly: true}}
}

type sharedMetadataResource struct {
	metadata.ResourceInterface
	getter metadata.Getter
	reads  *sharedReads
	what   Shared
}

// Namespace implements metadata.Getter.
func (m sharedMetadataResource) Namespace(namespace string) metadata.ResourceInterface {
	m.ResourceInterface, m.what.Namespace = m.getter.Namespace(namespace), namespace
	return m
}

// List returns shared metadata, which nobody may change.
func (m sharedMetadataResource) List(ctx context.Context, opts metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	items, meta, err := m.reads.view.List(ctx, m.what, opts)
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{ListMeta: meta, Items: make([]metav1.PartialObjectMetadata, len(items))}
	for i, item := range items {
		list.Items[i] = *item.(*metav1.PartialObjectMetadata)
	}
	return list, nil
}

// Watch streams shared metadata, which nobody may change.
func (m sharedMetadataResource) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return m.reads.view.Watch(ctx, m.what, opts)
}
