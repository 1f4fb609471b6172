// Package kubectl is the command line that comes with skiff: upstream's own command tree, built from k8s.io/kubectl as a
// program of its own (cmd/kubectl), so that what it brings along burdens no other process.
package kubectl
