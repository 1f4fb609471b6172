// Package controllertest runs control loops against a server of apitest, each with the service account that it acts as in a cluster, and
// stands in for the scheduler and the kubelet of their pods.
//
// It must not import the API server, its store or its cache, or another component: tests reach the server through apitest.
package controllertest
