// Package cluster puts the parts together: it opens the store, starts the API server on it and the components beside it, makes the
// certificates and kubeconfigs they need, and keeps track of the process that runs them.
//
// It alone may import every other package.
package cluster
