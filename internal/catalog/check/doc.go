// Package check is what the packages of the catalog write their validation with: a Part collects the errors of one part of an
// object. It builds a field path only for an error, so that validating a valid object costs nearly nothing.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package check
