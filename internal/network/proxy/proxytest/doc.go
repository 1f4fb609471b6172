// Package proxytest is the suite that every mode of the service proxy passes, with real packets. The test process is the node (package alone gives it a
// machine of its own: its threads may be anywhere in the mode's code, and all are on the node); pods, another node's pod and an outside host
// are network namespaces around it:
//
//	pod0, pod1, pod2    10.42.0.2 ...  fd42::2 ...   on this node
//	far                 10.42.1.2      fd42:1::2     a pod behind another node; it knows no way to the outside
//	outside             192.0.2.2      2001:db8:1::2 a host that routes service ranges and external addresses to the node
//	node                192.0.2.1      2001:db8:1::1
//
// A mode's package has
//
//	func TestMain(m *testing.M) { proxytest.Main(m) }
//	func TestSuite(t *testing.T) { proxytest.Run(t, proxytest.Options{New: ..., Clean: ...}) }
package proxytest
