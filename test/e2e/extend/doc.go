// Package extend tests what control loops and informers do with custom resources, as operators rely on it: garbage collection, namespaces that end,
// quota, and dynamic and metadata informers in the server's process and over HTTPS.
//
// It must not import k8s.io/kubernetes: upstream is what skiff is compared with, never a part of it.
package extend
