// Command kubectl is the kubectl that comes with skiff.
//
// It must not import anything of skiff but internal/kubectl.
package main
