// Package bootstrap looks after the tokens that machines join a cluster with. One loop signs what a cluster tells machines that do not know it yet,
// the config map cluster-info in kube-public, with every token, so that whoever has a token can tell a true one from a forged one. The other
// removes tokens whose time is over, and those whose uses are used up once those machines have joined.
package bootstrap
