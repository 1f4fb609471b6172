package client

import (
	"k8s.io/client-go/informers/admissionregistration"
	"k8s.io/client-go/informers/apiserverinternal"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/autoscaling"
	"k8s.io/client-go/informers/batch"
	"k8s.io/client-go/informers/certificates"
	"k8s.io/client-go/informers/coordination"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/discovery"
	"k8s.io/client-go/informers/events"
	"k8s.io/client-go/informers/extensions"
	"k8s.io/client-go/informers/flowcontrol"
	"k8s.io/client-go/informers/lifecycle"
	"k8s.io/client-go/informers/networking"
	"k8s.io/client-go/informers/node"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/rbac"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/informers/storagemigration"
)

// The groups of informers. Each must be created with the sharedFactory, not with the factory that it embeds.

// Admissionregistration implements informers.SharedInformerFactory.
func (f *sharedFactory) Admissionregistration() admissionregistration.Interface {
	return admissionregistration.New(f, f.options.Namespace, f.options.Select)
}

// Internal implements informers.SharedInformerFactory.
func (f *sharedFactory) Internal() apiserverinternal.Interface {
	return apiserverinternal.New(f, f.options.Namespace, f.options.Select)
}

// Apps implements informers.SharedInformerFactory.
func (f *sharedFactory) Apps() apps.Interface {
	return apps.New(f, f.options.Namespace, f.options.Select)
}

// Autoscaling implements informers.SharedInformerFactory.
func (f *sharedFactory) Autoscaling() autoscaling.Interface {
	return autoscaling.New(f, f.options.Namespace, f.options.Select)
}

// Batch implements informers.SharedInformerFactory.
func (f *sharedFactory) Batch() batch.Interface {
	return batch.New(f, f.options.Namespace, f.options.Select)
}

// Certificates implements informers.SharedInformerFactory.
func (f *sharedFactory) Certificates() certificates.Interface {
	return certificates.New(f, f.options.Namespace, f.options.Select)
}

// Coordination implements informers.SharedInformerFactory.
func (f *sharedFactory) Coordination() coordination.Interface {
	return coordination.New(f, f.options.Namespace, f.options.Select)
}

// Core implements informers.SharedInformerFactory.
func (f *sharedFactory) Core() core.Interface {
	return core.New(f, f.options.Namespace, f.options.Select)
}

// Discovery implements informers.SharedInformerFactory.
func (f *sharedFactory) Discovery() discovery.Interface {
	return discovery.New(f, f.options.Namespace, f.options.Select)
}

// Events implements informers.SharedInformerFactory.
func (f *sharedFactory) Events() events.Interface {
	return events.New(f, f.options.Namespace, f.options.Select)
}

// Extensions implements informers.SharedInformerFactory.
func (f *sharedFactory) Extensions() extensions.Interface {
	return extensions.New(f, f.options.Namespace, f.options.Select)
}

// Flowcontrol implements informers.SharedInformerFactory.
func (f *sharedFactory) Flowcontrol() flowcontrol.Interface {
	return flowcontrol.New(f, f.options.Namespace, f.options.Select)
}

// Lifecycle implements informers.SharedInformerFactory.
func (f *sharedFactory) Lifecycle() lifecycle.Interface {
	return lifecycle.New(f, f.options.Namespace, f.options.Select)
}

// Networking implements informers.SharedInformerFactory.
func (f *sharedFactory) Networking() networking.Interface {
	return networking.New(f, f.options.Namespace, f.options.Select)
}

// Node implements informers.SharedInformerFactory.
func (f *sharedFactory) Node() node.Interface {
	return node.New(f, f.options.Namespace, f.options.Select)
}

// Policy implements informers.SharedInformerFactory.
func (f *sharedFactory) Policy() policy.Interface {
	return policy.New(f, f.options.Namespace, f.options.Select)
}

// Rbac implements informers.SharedInformerFactory.
func (f *sharedFactory) Rbac() rbac.Interface {
	return rbac.New(f, f.options.Namespace, f.options.Select)
}

// Resource implements informers.SharedInformerFactory.
func (f *sharedFactory) Resource() resource.Interface {
	return resource.New(f, f.options.Namespace, f.options.Select)
}

// Scheduling implements informers.SharedInformerFactory.
func (f *sharedFactory) Scheduling() scheduling.Interface {
	return scheduling.New(f, f.options.Namespace, f.options.Select)
}

// Storage implements informers.SharedInformerFactory.
func (f *sharedFactory) Storage() storage.Interface {
	return storage.New(f, f.options.Namespace, f.options.Select)
}

// Storagemigration implements informers.SharedInformerFactory.
func (f *sharedFactory) Storagemigration() storagemigration.Interface {
	return storagemigration.New(f, f.options.Namespace, f.options.Select)
}
