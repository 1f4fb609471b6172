// Package bootstrap handles the bootstrap tokens that machines join a cluster with. One loop publishes the ConfigMap cluster-info in kube-public, which
// tells joining machines where the API server is and whom to trust. One signs it with every token, so that a machine with a token can tell it from a
// forged one. One deletes expired tokens, and those without uses left once those machines have joined.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package bootstrap
