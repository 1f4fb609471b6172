// Package imagepolicywebhook is the admission plugin ImagePolicyWebhook: it asks a webhook whether the images of a pod may be used, with an ImageReview of
// imagepolicy.k8s.io/v1alpha1. Its configuration names a kubeconfig file that says where the webhook is, how long its answers are believed, and whether pods are
// admitted while it cannot be reached.
//
// Everything is bounded: the size and the number of answers that are kept, the size of an answer, the tries and their time.
//
// What differs from upstream: a kubeConfigFile that is no absolute path is relative to the file that names it, and not to the working directory of the process;
// and its configuration is decoded strictly.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package imagepolicywebhook
