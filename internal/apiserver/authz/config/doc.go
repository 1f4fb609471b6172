// Package config makes the chain of authorizers from flags: the modes of --authorization-mode with the flags of ABAC and Webhook, or the file of
// --authorization-config, an AuthorizationConfiguration of apiserver.config.k8s.io. The file may name several webhooks, with failure policies and match
// conditions, and is loaded again when it changes. One that is invalid then changes nothing: the authorizers before it stay, the log says why.
//
// Members of system:masters are allowed before any authorizer is asked. Decisions are counted by authorizer.
//
// What differs from upstream: connectionInfo of type InClusterConfig is refused with the field's path (upstream's documentation says that it is not for
// kube-apiserver, and it crashes); a file is at most maxFile bytes, and looked at every second instead of watched.
//
// It must not import the API server's root package, its store or its cache.
package config
