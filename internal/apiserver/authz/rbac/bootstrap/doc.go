// Package bootstrap declares the roles and bindings that every cluster has from its first moment, and keeps them: what is missing is
// added when the server starts, what was added by others stays. They are those of Kubernetes v1.37, rule for rule; a recording from an
// upstream server in testdata is the proof.
package bootstrap
