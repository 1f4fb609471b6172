package program

import (
	"net"
	"testing"
	"time"
)

// aloneTime bounds how long a test waits for others that run a node on this machine.
const aloneTime = 15 * time.Minute

// Alone waits until no other test, in whatever process, runs a node on the machine itself, and keeps others waiting until this one ends. There is
// one kubelet's port on a machine.
func Alone(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(aloneTime); ; time.Sleep(100 * time.Millisecond) {
		l, err := net.Listen("unix", "@skiff-test-node") // an abstract name: the kernel frees it whatever happens
		if err == nil {
			t.Cleanup(func() { l.Close() })
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("another test runs a node on this machine for %v now: %v", aloneTime, err)
		}
	}
}
