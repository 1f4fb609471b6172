//go:build linux

package csi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"skiff/internal/kubelet/volume"
)

// A volume is staged once for the node, published for each pod, and unstaged when the last pod has gone, whichever process does that.
func TestSharedByPods(t *testing.T) {
	n := newNode(t)
	n.claim("data")
	a, b := n.pod("a", "data"), n.pod("b", "data")
	n.setUp(a)
	n.called("stage h-data, publish h-data")
	n.setUp(a)
	n.called("")
	n.setUp(b)
	n.called("publish h-data")
	dir, err := n.volumes.Path(a, "data")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	n.restart()
	n.setUp(b) // idempotent calls find what is mounted
	n.called("stage h-data, publish h-data")
	n.tearDown("a")
	n.called("unpublish h-data")
	n.restart()
	n.tearDown("b")
	n.called("unpublish h-data, unstage h-data")
	n.clean()
	if data, err := os.ReadFile(filepath.Join(n.driver.dir, "h-data", "file")); err != nil || string(data) != "hello" {
		t.Errorf("the data is %q, %v", data, err)
	}
}

// What a failed call leaves behind depends on whether the driver may still be at it.
func TestFailures(t *testing.T) {
	n := newNode(t)
	n.claim("data")
	pod := n.pod("a", "data")
	n.driver.failing("stage", internal)
	n.fails(pod, `MountVolume.MountDevice failed for volume "pv-data" : rpc error: code = Internal desc = no`)
	n.tearDown("a")
	n.called("stage h-data")
	n.clean()

	n.driver.failing("stage", status.Error(codes.DeadlineExceeded, "slow"))
	n.fails(pod, `MountVolume.MountDevice failed for volume "pv-data" : rpc error: code = DeadlineExceeded desc = slow`)
	n.tearDown("a")
	n.called("stage h-data, unstage h-data")

	n.driver.failing("publish", internal)
	n.fails(pod, `MountVolume.SetUp failed for volume "pv-data" : rpc error: code = Internal desc = no`)
	n.tearDown("a")
	n.called("stage h-data, publish h-data, unstage h-data")

	n.driver.failing("unpublish", internal)
	n.setUp(pod)
	if err := n.volumes.TearDown(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "Unmounter.TearDownAt failed") {
		t.Errorf("torn down: %v", err)
	}
	n.driver.failing("unstage", internal)
	if err := n.volumes.TearDown(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "UnmountDevice failed") {
		t.Errorf("torn down: %v", err)
	}
	n.driver.failing("", nil)
	n.restart()
	n.tearDown("a")
	n.called("stage h-data, publish h-data, unpublish h-data, unpublish h-data, unstage h-data, unpublish h-data, unstage h-data")
	n.clean()
}

// A driver that is not there is waited for, both to mount and to unmount.
func TestNoDriver(t *testing.T) {
	n := newNode(t)
	n.claim("data")
	n.restart(driverName)
	n.fails(n.pod("a", "data"), `MountVolume.MountDevice failed for volume "pv-data" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: `+
		`driver name directories.test not found in the list of registered CSI drivers`)
	n.restart()
	n.setUp(n.pod("a", "data"))
	n.restart(driverName)
	if err := n.volumes.TearDown(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "not found in the list of registered CSI drivers") {
		t.Errorf("torn down: %v", err)
	}
	n.restart()
	n.tearDown("a")
	n.clean()
}

// Files are given to the pod's group by the policy of the CSIDriver, once.
func TestGroup(t *testing.T) {
	n := newNode(t)
	n.claim("data")
	group := func() uint32 {
		info, err := os.Stat(filepath.Join(n.driver.dir, "h-data"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Gid
	}
	gid := int64(4321)
	pod := n.pod("a", "data")
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &gid}
	none := storagev1.NoneFSGroupPolicy
	file := n.objects.drivers[driverName].Spec.FSGroupPolicy
	n.objects.drivers[driverName].Spec.FSGroupPolicy = &none
	n.setUp(pod)
	if group() != 0 {
		t.Errorf("the group is %d with policy None", group())
	}
	n.tearDown("a")
	n.objects.drivers[driverName].Spec.FSGroupPolicy = file
	n.setUp(pod)
	if group() != 4321 {
		t.Errorf("the group is %d", group())
	}
}

// A volume in a pod's spec is published only; the driver is told of the pod, gets its tokens, and is called again if it wants to be.
func TestEphemeral(t *testing.T) {
	n := newNode(t)
	yes := true
	spec := &n.objects.drivers[driverName].Spec
	spec.PodInfoOnMount, spec.RequiresRepublish, spec.TokenRequests = &yes, &yes, []storagev1.TokenRequest{{Audience: "vault"}}
	pod := n.pod("a")
	addVolume(pod, corev1.Volume{Name: "inline", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driverName, VolumeAttributes: map[string]string{"size": "1"}}}})
	n.setUp(pod)
	handle := ephemeralHandle("a", "inline")
	n.called("publish " + handle)
	context := n.driver.last.VolumeContext
	var tokens map[string]struct{ Token string }
	if err := json.Unmarshal([]byte(context["csi.storage.k8s.io/serviceAccount.tokens"]), &tokens); err != nil || tokens["vault"].Token != "token 1 for [vault]" {
		t.Errorf("the tokens are %v, %v", tokens, err)
	}
	if context["size"] != "1" || context["csi.storage.k8s.io/pod.name"] != "p-a" || context["csi.storage.k8s.io/ephemeral"] != "true" {
		t.Errorf("the driver is told %v", context)
	}
	n.setUp(pod)
	n.called("publish " + handle)
	n.driver.failing("publish", internal)
	n.fails(pod, `MountVolume.SetUp failed for volume "inline" : rpc error: code = Internal desc = no`)
	if _, err := n.volumes.Path(pod, "inline"); err != nil {
		t.Errorf("the volume is not mounted any more: %v", err)
	}
	n.driver.failing("", nil)
	n.called("publish " + handle)
	n.tearDown("a")
	n.called("unpublish " + handle)
	n.clean()

	spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	n.fails(pod, `MountVolume.SetUp failed for volume "inline" : kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode "Ephemeral" not supported by driver `+
		`directories.test (only supports ["Persistent"])`)
}

// A volume that a controller attaches is reported in use first, and mounted once the node's status has it attached. It is in use until it is unstaged.
func TestAttach(t *testing.T) {
	n := newNode(t)
	n.claim("data")
	n.objects.drivers[driverName].Spec.AttachRequired = nil
	pod := n.pod("a", "data")
	name := corev1.UniqueVolumeName("kubernetes.io/csi/directories.test^h-data")
	done := make(chan error, 1)
	go func() { done <- n.volumes.SetUp(t.Context(), pod) }()
	for len(n.plugin.VolumesInUse()) == 0 {
		time.Sleep(time.Millisecond)
	}
	if got := n.driver.called(); got != "" {
		t.Errorf("called before the volume is attached: %s", got)
	}
	n.objects.mu.Lock()
	n.objects.attached[attachmentID("h-data", driverName, "n1")] = &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{Attached: true,
		AttachmentMetadata: map[string]string{"device": "/dev/x"}}}
	n.objects.mu.Unlock()
	n.plugin.VolumesInUseReported(n.plugin.VolumesInUse())
	n.attachedToNode(name)
	n.observe()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n.driver.last.PublishContext["device"] != "/dev/x" {
		t.Errorf("the driver is told %v", n.driver.last.PublishContext)
	}
	n.restart()
	if got := n.plugin.VolumesInUse(); len(got) != 1 || got[0] != name {
		t.Errorf("in use after a restart: %v", got)
	}
	n.driver.failing("unstage", internal)
	if err := n.volumes.TearDown(t.Context(), "a"); err == nil {
		t.Error("torn down though the driver refused")
	}
	if got := n.plugin.VolumesInUse(); len(got) != 1 {
		t.Errorf("in use while staged: %v", got)
	}
	n.driver.failing("", nil)
	n.tearDown("a")
	if got := n.plugin.VolumesInUse(); len(got) != 0 {
		t.Errorf("in use after all: %v", got)
	}
}

// A pod follows another one with the same volume, which the API still has in use and attached: the kubelet does not mount it before it has reported the new use, nor while it is
// attached only by what was observed of the node before.
func TestAttachAfterAnother(t *testing.T) {
	n := newNode(t)
	n.claim("data")
	n.objects.drivers[driverName].Spec.AttachRequired = nil
	name := corev1.UniqueVolumeName("kubernetes.io/csi/directories.test^h-data")
	n.objects.attached[attachmentID("h-data", driverName, "n1")] = &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{Attached: true}}
	n.objects.node.Status.VolumesInUse = []corev1.UniqueVolumeName{name}
	n.attachedToNode(name)
	n.observe()
	done := make(chan error, 1)
	go func() { done <- n.volumes.SetUp(t.Context(), n.pod("b", "data")) }()
	for len(n.plugin.VolumesInUse()) == 0 {
		time.Sleep(time.Millisecond)
	}
	waits := func(when string) {
		t.Helper()
		select {
		case err := <-done:
			t.Fatalf("%s: the volume is set up: %v", when, err)
		case <-time.After(3 * attachPoll):
		}
		n.called("")
	}
	n.plugin.VolumesInUseReported(nil) // a status that was computed between the two pods
	waits("not reported")
	n.attachedToNode() // the controller is about to detach it
	n.plugin.VolumesInUseReported(n.plugin.VolumesInUse())
	waits("being detached")
	n.attachedToNode(name)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	n.called("stage h-data, publish h-data")
}

// attachedToNode has the API say which volumes are attached to the node.
func (n *node) attachedToNode(names ...corev1.UniqueVolumeName) {
	n.objects.mu.Lock()
	defer n.objects.mu.Unlock()
	n.objects.node.Status.VolumesAttached = nil
	for _, name := range names {
		n.objects.node.Status.VolumesAttached = append(n.objects.node.Status.VolumesAttached, corev1.AttachedVolume{Name: name})
	}
}

// observe has the kubelet observe the node as the API has it.
func (n *node) observe() {
	live, _ := n.objects.Node(n.Context()) // it does not fail
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status = live.Status
}

// What drivers say of a volume is what its usage is.
func TestUsage(t *testing.T) {
	n := newNode(t)
	n.claim("data")
	n.setUp(n.pod("a", "data"))
	list, err := n.volumes.Usage(t.Context(), "a")
	if err != nil || len(list) != 1 || list[0].Volume != "data" || list[0].Used != 1 || list[0].Capacity != 3 {
		t.Errorf("usage: %+v %v", list, err)
	}
	n.tearDown("a")
	n.driver.cannot = map[csi.NodeServiceCapability_RPC_Type]bool{csi.NodeServiceCapability_RPC_GET_VOLUME_STATS: true}
	n.restart()
	n.setUp(n.pod("a", "data"))
	if list, err := n.volumes.Usage(t.Context(), "a"); err != nil || len(list) != 0 {
		t.Errorf("usage: %+v %v", list, err)
	}
}

// A node that is taken down has nothing mounted any more, though no driver is left to ask; the data stays.
func TestClean(t *testing.T) {
	n := newNode(t)
	n.claim("data")
	n.setUp(n.pod("a", "data"))
	without := volume.New(volume.Options{Root: filepath.Join(n.dir, "pods")})
	if err := without.TearDown(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := Clean(t.Context(), n.dir); err != nil {
		t.Fatal(err)
	}
	n.clean()
	if _, err := os.Stat(filepath.Join(n.driver.dir, "h-data")); err != nil {
		t.Error(err)
	}
}

// A volume for one pod is not published for another one, also if another process has published it.
func TestOnePod(t *testing.T) {
	n := newNode(t)
	n.claim("data", func(pv *corev1.PersistentVolume) {
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	})
	n.setUp(n.pod("a", "data"))
	want := `MountVolume.SetUp failed for volume "pv-data" : volume uses the ReadWriteOncePod access mode and is already in use by another pod`
	n.fails(n.pod("b", "data"), want)
	n.restart()
	n.fails(n.pod("b", "data"), want)
	n.tearDown("b")
	n.tearDown("a")
	n.setUp(n.pod("b", "data"))
}

// A block device is published below the kubelet's own directory, and is what containers get as a device.
func TestBlock(t *testing.T) {
	n := newNode(t)
	n.claim("data", func(pv *corev1.PersistentVolume) {
		block := corev1.PersistentVolumeBlock
		pv.Spec.VolumeMode = &block
	})
	pod := n.pod("a", "data")
	c := &pod.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	n.driver.failing("publish", internal)
	n.fails(pod, `MapVolume.MapPodDevice failed for volume "pv-data" : rpc error: code = Internal desc = no`)
	n.driver.failing("", nil)
	n.setUp(pod)
	n.setUp(pod)
	n.called("stage h-data, publish h-data, publish h-data")
	devices, err := n.volumes.Devices(pod, c)
	if err != nil || len(devices) != 1 || devices[0].HostPath != filepath.Join(n.dir, "plugins/kubernetes.io/csi/volumeDevices/publish/pv-data/a") ||
		devices[0].ContainerPath != "/dev/data" || devices[0].Permissions != "mrw" {
		t.Errorf("the container gets %v, %v", devices, err)
	}
	n.restart()
	n.tearDown("a")
	n.called("unpublish h-data, unstage h-data")
	n.clean()
	for _, dir := range []string{"publish/pv-data", "staging/pv-data", "pv-data"} {
		if _, err := os.Stat(filepath.Join(n.dir, "plugins/kubernetes.io/csi/volumeDevices", dir)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
}
