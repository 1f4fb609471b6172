// Package signer validates the names of signers in certificate requests, trust bundles and the volumes that project them.
//
// Packages of the catalog call it when they validate a request.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package signer
