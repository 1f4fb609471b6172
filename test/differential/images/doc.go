// Command images runs the webhook for image policies that testdata/plugins/*.script need, until it is stopped: its argument is the directory in which it writes the
// configuration of the server that asks it. Without an argument it prints which plugins that server must have.
//
// It must not import k8s.io/kubernetes.
package main
