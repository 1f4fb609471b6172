// Package skifftest runs a Kubernetes inside `go test`: the API server alone,
//
//	func TestMine(t *testing.T) {
//		server := skifftest.Start(t)
//		pods, err := server.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
//		...
//	}
//
// or with the control loops, the scheduler and nodes, whose containers are imaginary:
//
//	server := skifftest.Start(t, skifftest.WithControllers(), skifftest.WithScheduler(), skifftest.WithHollowNodes(3))
//
// It keeps everything in memory, answers on a free port of the loopback interface over HTTPS with certificates of its own, is ready within
// a fraction of a second, and is gone with all it made when the test ends. Any number of servers run side by side.
package skifftest
