// Package webhook has the plugins MutatingAdmissionWebhook and ValidatingAdmissionWebhook, which ask the webhooks of MutatingWebhookConfigurations and
// ValidatingWebhookConfigurations about writes and connections.
//
// The configurations are compiled into an immutable index when they change. Without any the plugins handle no request, and cost a load of a pointer. A
// request is compared with the rules of all webhooks once for each resource and operation; then only selectors and match conditions are left. What is
// sent to webhooks is encoded once for each version of the object, not for each webhook. Mutating webhooks are called one after the other, by the name of
// their configuration and their order in it; validating ones at the same time.
//
// Subfolders: match compares rules, review encodes and decodes AdmissionReviews, client has the connections.
//
// What differs from upstream: redirects are not followed, answers are limited to 3 MB, of several refusals the first in order is answered, not the first to
// arrive, and a call that fails because a kept connection was closed is repeated.
//
// It must not import another plugin, the API server's root package, its store or its cache.
package webhook
