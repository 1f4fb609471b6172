package client

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// InformerOptions select what the informers of a factory hold. The zero value selects everything.
type InformerOptions struct {
	Namespace string // all namespaces if empty
	// Resync is the resync period of event handlers; no resync if zero.
	Resync time.Duration
	// Select sets label and field selectors.
	Select func(*metav1.ListOptions)
}

// Informers returns a factory of typed informers. Nobody may change the objects that they hold.
func (c *Client) Informers(o InformerOptions) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactoryWithOptions(c.kubernetes, o.Resync,
		informers.WithNamespace(o.Namespace), informers.WithTweakListOptions(internalinterfaces.TweakListOptionsFunc(o.Select)))
	if c.shared == nil {
		return factory
	}
	return &sharedFactory{SharedInformerFactory: factory, reads: c.shared, options: o}
}

// DynamicInformers returns a factory of informers for resources whose types are not known when a component is built.
func (c *Client) DynamicInformers(o InformerOptions) dynamicinformer.DynamicSharedInformerFactory {
	return dynamicinformer.NewFilteredDynamicSharedInformerFactory(c.dynamic, o.Resync, o.Namespace, o.Select)
}

// MetadataListerWatcher returns what a reflector follows the metadata of a resource with. Nobody may change what it lists and watches.
func (c *Client) MetadataListerWatcher(resource schema.GroupVersionResource) cache.ListerWatcher {
	if c.shared != nil && c.shared.view.Shares(resource) {
		return &sharedListerWatcher{view: c.shared.view, what: Shared{Resource: resource, MetadataOnly: true}}
	}
	api := c.metadata.Resource(resource)
	return &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) },
		WatchFuncWithContext: api.Watch,
	}
}

// MetadataInformers returns a factory of informers for the metadata of any resource.
func (c *Client) MetadataInformers(o InformerOptions) metadatainformer.SharedInformerFactory {
	from := c.metadata
	if c.shared != nil {
		from = sharedMetadata{Interface: c.metadata, reads: c.shared}
	}
	return metadatainformer.NewFilteredSharedInformerFactory(from, o.Resync, o.Namespace, o.Select)
}
