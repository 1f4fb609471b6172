//go:build linux

package disk_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// TestSanity runs csi-sanity, the test of CSI drivers that others wrote, on the driver: that of kubernetes-csi/csi-test that $CSI_SANITY names.
func TestSanity(t *testing.T) {
	sanity := os.Getenv("CSI_SANITY")
	if sanity == "" {
		t.Skip("$CSI_SANITY names no csi-sanity")
	}
	n := newNode(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, "csi.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, n.Driver)
	csi.RegisterControllerServer(server, n.Driver)
	csi.RegisterNodeServer(server, n.Driver)
	go func() { _ = server.Serve(listener) }() // until it is stopped
	defer server.Stop()
	cmd := exec.CommandContext(t.Context(), sanity, "--csi.endpoint", socket, "--csi.mountdir", filepath.Join(dir, "target"), "--csi.stagingdir", filepath.Join(dir, "staging"),
		"--csi.testvolumesize", "67108864", "--csi.testvolumeexpandsize", "134217728", "--ginkgo.no-color")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
