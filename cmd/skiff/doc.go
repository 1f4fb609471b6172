// Command skiff is a complete Kubernetes in one program. Its commands are in internal/cli.
//
// It must not import anything of skiff but internal/cli.
package main
