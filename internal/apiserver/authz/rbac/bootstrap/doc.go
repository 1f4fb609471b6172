// Package bootstrap declares the default roles and bindings of a cluster and reconciles them when the server starts: what is missing is
// added, what others added stays. They are those of Kubernetes v1.37, rule for rule; a recording from an upstream server in testdata is the
// proof.
//
// It must not import the API server's root package, its store or its cache: it reads and writes through objects.Store.
package bootstrap
