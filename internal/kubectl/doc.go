// Package kubectl is the kubectl that comes with skiff: upstream's command tree from k8s.io/kubectl, built as a program of its own (cmd/kubectl), so that its
// dependencies are in no other process. It stands before the API: every command is a client like any other.
//
// Three things differ from upstream. `run` also creates a Deployment, a Job or a pod by --restart, or what --generator names; infer.go and
// docs/decisions/0009-kubectl-run.md say which. What is bound to fail, such as an invalid image reference, is refused before the first request (types.go,
// run.go). And --username overrides the user of the kubeconfig (username.go).
//
// It must not import anything else of skiff.
package kubectl
