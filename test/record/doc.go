// Command record runs the catalog's stories (see internal/catalog/catalogtest) against an upstream Kubernetes API server and writes its answers
// beside them.
//
//	go run ./test/record [--kubeconfig FILE] internal/catalog/*/testdata/stories/*.yaml
//
// The server should run with the admission plugins that fill in defaults disabled (ServiceAccount, Priority, DefaultTolerationSeconds,
// StorageObjectInUseProtection, TaintNodesByCondition, LimitRanger, ResourceQuota), and without controllers.
//
// It must not import k8s.io/kubernetes: upstream is what skiff is compared with, never a part of it.
package main
