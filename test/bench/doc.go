// Package bench measures skiff: the benchmarks of this package measure the API server's handlers alone, on the memory store without a network,
// and parts of the node; run.sh measures whole clusters beside upstream.
//
// It must not import k8s.io/kubernetes: upstream is what skiff is compared with, never a part of it.
package bench
