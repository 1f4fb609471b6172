// Package defaultingressclass is the admission plugin DefaultIngressClass: an Ingress that names no class gets the cluster's default class.
//
// It must not import the API server's root package, its store, its cache or another plugin: it reads through objects.Reader.
package defaultingressclass
