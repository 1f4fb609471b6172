// Package subresources serves the resources and subresources that no generic verb serves: log, exec, attach, port forwarding and proxies, which lead
// to kubelets, pods and services; bindings and evictions of pods; reviews of identity and access; tokens of service accounts; and statuses of
// components. Each is a verbs.Handler: a request comes from verbs.API.Serve, past all filters, and leaves through package response.
//
// It must not import front, nonresource, guards or the API server itself.
package subresources
