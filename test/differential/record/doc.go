// Command record runs the commands of the differential scripts against an upstream server and writes down what they print.
//
//	go run ./test/differential/record [--kubeconfig FILE] [--kubectl FILE] [SCRIPT...]
//
// The server must be fresh: upstream.sh starts one. Without arguments it records every script.
//
// It must not import k8s.io/kubernetes: upstream is what skiff is compared with, never a part of it.
package main
