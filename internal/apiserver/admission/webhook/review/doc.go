// Package review writes and reads AdmissionReviews, the messages between the API server and webhooks, in the versions v1 and v1beta1, which have the
// same fields.
//
// What is sent is spliced: the part after the uid is made once for each version of the object and shared by all webhooks that get it.
//
// It must not import a plugin, the API server's root package, its store or its cache.
package review
