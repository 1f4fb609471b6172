//go:build linux

package csi

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// listen serves the node's driver on a socket.
func (n *node) listen() (endpoint string, stop func()) {
	n.Helper()
	endpoint = filepath.Join(n.dir, "csi.sock")
	l, err := net.Listen("unix", endpoint)
	if err != nil {
		n.Fatal(err)
	}
	s := grpc.NewServer()
	csi.RegisterNodeServer(s, n.driver)
	go func() { _ = s.Serve(l) }()
	n.Cleanup(s.Stop)
	return endpoint, s.Stop
}

// A driver behind a socket mounts as one in this process does, and is in the CSINode while it is registered.
func TestSocket(t *testing.T) {
	n := newNode(t)
	n.restart(driverName)
	endpoint, stop := n.listen()
	api := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}})
	r := &Registration{Plugin: n.plugin, Info: &NodeInfo{Client: api, NodeName: "n1", Log: slog.New(slog.DiscardHandler)}}
	drivers := func() []storagev1.CSINodeDriver {
		c, err := api.StorageV1().CSINodes().Get(context.Background(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c.Spec.Drivers
	}
	if err := r.Validate(driverName, endpoint, []string{"2.0.0"}); err == nil {
		t.Error("a driver of a version to come was accepted")
	}
	if err := r.Validate(driverName, endpoint, []string{"1.13.0"}); err != nil {
		t.Fatal(err)
	}
	if err := r.Register(t.Context(), driverName, endpoint, []string{"1.13.0"}); err != nil {
		t.Fatal(err)
	}
	if got := drivers(); len(got) != 1 || got[0].NodeID != "node-1" || *got[0].Allocatable.Count != 7 {
		t.Errorf("the CSINode has %+v", got)
	}
	if err := r.Validate(driverName, "/another.sock", []string{"1.13.0"}); err == nil || !strings.Contains(err.Error(), "already registered") {
		t.Errorf("a second driver of the name: %v", err)
	}
	n.claim("data")
	n.driver.called()
	n.setUp(n.pod("a", "data"))
	n.called("stage h-data, publish h-data")
	n.tearDown("a")
	n.called("unpublish h-data, unstage h-data")
	n.clean()

	n.setUp(n.pod("a", "data"))
	stop()
	if err := n.volumes.TearDown(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "Unavailable") {
		t.Errorf("torn down by a driver that does not answer: %v", err)
	}
	n.listen()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) { // a connection that could not be made is tried again after a while
		err := n.volumes.TearDown(t.Context(), "a")
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	r.Deregister(t.Context(), driverName, endpoint)
	if got := drivers(); len(got) != 0 {
		t.Errorf("after it was deregistered the CSINode has %+v", got)
	}
	n.restart() // for the clean-up
}
