// Package kubectl is the command line that comes with skiff: upstream's own command tree, built from k8s.io/kubectl as a
// program of its own (cmd/kubectl), so that what it brings along burdens no other process.
//
// Three things are ours. `run` is also the one that the guide describes, which makes a Deployment, a Job or a pod by --restart, or what
// --generator names; see infer.go and docs/decisions/0009-kubectl-run.md for when it is which. What is bound to fail, such as an image
// reference that is none, is refused before the first request (types.go, run.go). And --username overrides whatever the kubeconfig has to
// say about who one is (kubectl.go).
package kubectl
