// Package webhook has the rules for how the server reaches a webhook, which webhook configurations and custom resource
// definitions share: a URL or a service, and the certificates it is verified with.
//
// The declarations of the catalog call it while they validate an object.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package webhook
