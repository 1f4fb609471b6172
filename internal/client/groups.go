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

// The groups of informers. Each must be made with the factory that shares, not with the one underneath.

// Admissionregistration is a group of informers.
func (f *sharedFactory) Admissionregistration() admissionregistration.Interface {
	return admissionregistration.New(f, f.options.Namespace, f.options.Select)
}

// Internal is a group of informers.
func (f *sharedFactory) Internal() apiserverinternal.Interface {
	return apiserverinternal.New(f, f.options.Namespace, f.options.Select)
}

// Apps is a group of informers.
func (f *sharedFactory) Apps() apps.Interface {
	return apps.New(f, f.options.Namespace, f.options.Select)
}

// Autoscaling is a group of informers.
func (f *sharedFactory) Autoscaling() autoscaling.Interface {
	return autoscaling.New(f, f.options.Namespace, f.options.Select)
}

// Batch is a group of informers.
func (f *sharedFactory) Batch() batch.Interface {
	return batch.New(f, f.options.Namespace, f.options.Select)
}

// Certificates is a group of informers.
func (f *sharedFactory) Certificates() certificates.Interface {
	return certificates.New(f, f.options.Namespace, f.options.Select)
}

// Coordination is a group of informers.
func (f *sharedFactory) Coordination() coordination.Interface {
	return coordination.New(f, f.options.Namespace, f.options.Select)
}

// Core is a group of informers.
func (f *sharedFactory) Core() core.Interface {
	return core.New(f, f.options.Namespace, f.options.Select)
}

// Discovery is a group of informers.
func (f *sharedFactory) Discovery() discovery.Interface {
	return discovery.New(f, f.options.Namespace, f.options.Select)
}

// Events is a group of informers.
func (f *sharedFactory) Events() events.Interface {
	return events.New(f, f.options.Namespace, f.options.Select)
}

// Extensions is a group of informers.
func (f *sharedFactory) Extensions() extensions.Interface {
	return extensions.New(f, f.options.Namespace, f.options.Select)
}

// Flowcontrol is a group of informers.
func (f *sharedFactory) Flowcontrol() flowcontrol.Interface {
	return flowcontrol.New(f, f.options.Namespace, f.options.Select)
}

// Lifecycle is a group of informers.
func (f *sharedFactory) Lifecycle() lifecycle.Interface {
	return lifecycle.New(f, f.options.Namespace, f.options.Select)
}

// Networking is a group of informers.
func (f *sharedFactory) Networking() networking.Interface {
	return networking.New(f, f.options.Namespace, f.options.Select)
}

// Node is a group of informers.
func (f *sharedFactory) Node() node.Interface {
	return node.New(f, f.options.Namespace, f.options.Select)
}

// Policy is a group of informers.
func (f *sharedFactory) Policy() policy.Interface {
	return policy.New(f, f.options.Namespace, f.options.Select)
}

// Rbac is a group of informers.
func (f *sharedFactory) Rbac() rbac.Interface {
	return rbac.New(f, f.options.Namespace, f.options.Select)
}

// Resource is a group of informers.
func (f *sharedFactory) Resource() resource.Interface {
	return resource.New(f, f.options.Namespace, f.options.Select)
}

// Scheduling is a group of informers.
func (f *sharedFactory) Scheduling() scheduling.Interface {
	return scheduling.New(f, f.options.Namespace, f.options.Select)
}

// Storage is a group of informers.
func (f *sharedFactory) Storage() storage.Interface {
	return storage.New(f, f.options.Namespace, f.options.Select)
}

// Storagemigration is a group of informers.
func (f *sharedFactory) Storagemigration() storagemigration.Interface {
	return storagemigration.New(f, f.options.Namespace, f.options.Select)
}
