// Package certificates declares certificate signing requests, pod certificate requests of kubelets and cluster trust bundles.
// Admission decides who may approve or sign a request.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package certificates
