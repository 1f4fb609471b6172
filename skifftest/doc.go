// Package skifftest runs Kubernetes inside `go test`: the API server alone,
//
//	func TestMine(t *testing.T) {
//		server := skifftest.Start(t)
//		pods, err := server.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
//		...
//	}
//
// or with the controllers, the scheduler and hollow nodes, whose containers are simulated:
//
//	server := skifftest.Start(t, skifftest.WithControllers(), skifftest.WithScheduler(), skifftest.WithHollowNodes(3))
//
// It keeps everything in memory, serves HTTPS with its own certificates on a free port of the loopback interface, is ready within
// a fraction of a second, and leaves nothing behind when the test ends. Any number of servers run side by side.
//
// Only tests import it. It must not import the kubelet or the network: its nodes are hollow.
package skifftest
