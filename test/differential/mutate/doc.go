// Command mutate changes valid objects in every way it knows, one change at a time, sends each to an upstream API server and to skiff, and prints
// where their answers differ. Nothing is written: creates and updates are dry runs.
//
//	go run ./test/differential/mutate --upstream KUBECONFIG --skiff KUBECONFIG [--modes create,update,status,merge,strategic,apply] [--pairs N] STORY.yaml...
//
// The objects are those that the catalog's stories (internal/catalog/*/testdata/stories) create. Each of their fields is removed, emptied,
// doubled and given values of other types, and each field that they do not have is added, as the Go types say. test/differential/upstream.sh
// mutate starts both servers. Differences that are found should become stories, so that they are tested from then on.
//
// It must not import k8s.io/kubernetes: upstream is what skiff is compared with, never a part of it.
package main
