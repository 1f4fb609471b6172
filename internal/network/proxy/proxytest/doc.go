// Package proxytest is the suite that every mode of the service proxy passes, with real packets. The test process is the node: package alone
// gives it namespaces of its own, so that all its threads are on the node, whatever code of the mode they run. Pods, a pod of another node and a
// host outside are network namespaces around it:
//
//	pod0, pod1, pod2    10.42.0.2 ...  fd42::2 ...   on this node
//	far                 10.42.1.2      fd42:1::2     a pod on another node; it has no route to the outside
//	outside             192.0.2.2      2001:db8:1::2 a host that routes service ranges and external addresses to the node
//	node                192.0.2.1      2001:db8:1::1
//
// A mode's package has
//
//	func TestMain(m *testing.M) { proxytest.Main(m) }
//	func TestSuite(t *testing.T) { proxytest.Run(t, proxytest.Options{New: ..., Clean: ...}) }
//
// It must not import the API server, its store or its cache, nor a mode: the tests of modes import it.
package proxytest
