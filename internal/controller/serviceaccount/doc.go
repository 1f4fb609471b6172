// Package serviceaccount creates the service account "default" in every namespace, which pods run as unless they name another.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package serviceaccount
