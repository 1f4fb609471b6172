//go:build linux

package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"skiff/internal/kubelet/volume"
	"skiff/internal/mounts"
)

// directories is a driver whose volumes are directories: staged by a bind mount, and published by another one.
type directories struct {
	csi.UnimplementedNodeServer
	dir string

	mu     sync.Mutex
	calls  []string
	fail   map[string]error // by method
	cannot map[csi.NodeServiceCapability_RPC_Type]bool
	last   *csi.NodePublishVolumeRequest
}

// call notes a call, and returns the error that it is to have.
func (d *directories) call(format string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	d.calls = append(d.calls, text)
	method, _, _ := strings.Cut(text, " ")
	return d.fail[method]
}

// called returns the calls since it was called last.
func (d *directories) called() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := strings.Join(d.calls, ", ")
	d.calls = nil
	return text
}

func (d *directories) failing(method string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = map[string]error{method: err}
}

func (d *directories) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER} {
		if !d.cannot[c] {
			r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}}})
		}
	}
	return r, nil
}

func (d *directories) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "node-1", MaxVolumesPerNode: 7, AccessibleTopology: &csi.Topology{Segments: map[string]string{"topology.test/node": "node-1"}}},
		d.call("info")
}

func bind(from, to string, readOnly bool) error {
	if there, err := mounts.Table(); err != nil || slices.ContainsFunc(there, func(m mounts.Mount) bool { return m.At == to }) {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil || !readOnly {
		return err
	}
	return unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

func unbind(path string) error {
	if err := unix.Unmount(path, 0); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d *directories) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := d.call("stage %s", r.VolumeId); err != nil {
		return nil, err
	}
	if r.VolumeCapability.GetBlock() != nil {
		return &csi.NodeStageVolumeResponse{}, nil
	}
	volume := filepath.Join(d.dir, r.VolumeId)
	if err := os.MkdirAll(volume, 0o755); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, bind(volume, r.StagingTargetPath, false)
}

func (d *directories) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := d.call("unstage %s", r.VolumeId); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, unbind(r.StagingTargetPath)
}

func (d *directories) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := d.call("publish %s", r.VolumeId); err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.last = r
	d.mu.Unlock()
	if r.VolumeCapability.GetBlock() != nil {
		return &csi.NodePublishVolumeResponse{}, d.bindDevice(r.TargetPath)
	}
	from := r.StagingTargetPath
	if from == "" {
		from = filepath.Join(d.dir, r.VolumeId)
		if err := os.MkdirAll(from, 0o755); err != nil {
			return nil, err
		}
	}
	return &csi.NodePublishVolumeResponse{}, bind(from, r.TargetPath, r.Readonly)
}

// bindDevice shows a device of the machine at a path.
func (d *directories) bindDevice(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), unix.Mount("/dev/null", path, "", unix.MS_BIND, ""))
}

func (d *directories) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := d.call("unpublish %s", r.VolumeId); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, unbind(r.TargetPath)
}

func (d *directories) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	return &csi.NodeExpandVolumeResponse{}, d.call("expand %s %d %s", r.VolumeId, r.CapacityRange.RequiredBytes, filepath.Base(r.VolumePath))
}

func (d *directories) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Used: 1, Available: 2, Total: 3}}}, nil
}

// objects are what the API has.
type objects struct {
	volume.Source
	mu       sync.Mutex
	node     corev1.Node
	drivers  map[string]*storagev1.CSIDriver
	attached map[string]*storagev1.VolumeAttachment
	secrets  map[string]*corev1.Secret
	claims   map[string]*corev1.PersistentVolumeClaim
	volumes  map[string]*corev1.PersistentVolume
	tokens   int
}

func get[T any](o *objects, m map[string]T, name string) (T, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found, ok := m[name]
	if !ok {
		return found, apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, name)
	}
	return found, nil
}

func (o *objects) Node(context.Context) (*corev1.Node, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.node.DeepCopy(), nil
}

func (o *objects) CSIDriver(name string) (*storagev1.CSIDriver, error) {
	return get(o, o.drivers, name)
}

func (o *objects) VolumeAttachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return get(o, o.attached, name)
}

func (o *objects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return get(o, o.secrets, name)
}

func (o *objects) Claim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	return get(o, o.claims, name)
}

func (o *objects) PersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return get(o, o.volumes, name)
}

func (o *objects) Token(_ context.Context, _, _ string, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tokens++
	r.Status.Token = fmt.Sprintf("token %d for %v", o.tokens, r.Spec.Audiences)
	return r, nil
}

func (o *objects) PatchClaimStatus(_ context.Context, _, name string, patch []byte) (*corev1.PersistentVolumeClaim, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	old, err := json.Marshal(o.claims[name])
	if err != nil {
		return nil, err
	}
	now, err := strategicpatch.StrategicMergePatch(old, patch, &corev1.PersistentVolumeClaim{})
	if err != nil {
		return nil, err
	}
	claim := &corev1.PersistentVolumeClaim{}
	err = json.Unmarshal(now, claim)
	o.claims[name] = claim
	return claim, err
}

func (o *objects) TrustBundle(context.Context, string) (*certificatesv1.ClusterTrustBundle, error) {
	return nil, errors.New("none")
}

// node is a machine with a driver, on which nothing is mounted when the test ends.
type node struct {
	*testing.T
	dir     string
	driver  *directories
	objects *objects
	plugin  *Plugin
	volumes *volume.Manager

	mu     sync.Mutex
	status corev1.NodeStatus // as it was observed
	events []string
}

const driverName = "directories.test"

func newNode(t *testing.T) *node {
	if os.Getuid() != 0 {
		t.Skip("mounts need root")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	no := false
	policy := storagev1.FileFSGroupPolicy
	n := &node{T: t, dir: dir, driver: &directories{dir: filepath.Join(dir, "storage")}, objects: &objects{drivers: map[string]*storagev1.CSIDriver{},
		attached: map[string]*storagev1.VolumeAttachment{}, secrets: map[string]*corev1.Secret{}, claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{}}}
	n.objects.drivers[driverName] = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: &no, FSGroupPolicy: &policy,
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}}}
	n.restart()
	t.Cleanup(func() {
		n.driver.failing("", nil)
		left, err := n.volumes.Left()
		if err != nil {
			t.Error(err)
		}
		for _, uid := range left {
			if err := n.volumes.TearDown(context.Background(), uid); err != nil {
				t.Error(err)
			}
		}
		n.clean()
	})
	return n
}

// restart has another process take over: it remembers nothing.
func (n *node) restart(without ...string) {
	n.plugin = New(Options{Root: n.dir, NodeName: "n1", Source: n.objects, InUseChanged: func() {}, Log: slog.New(slog.DiscardHandler), Event: func(_ runtime.Object, kind, reason, message string) {
		n.events = append(n.events, kind+" "+reason+" "+message)
	}, Node: func() *corev1.Node {
		n.mu.Lock()
		defer n.mu.Unlock()
		return &corev1.Node{Status: *n.status.DeepCopy()}
	}}, map[string]csi.NodeServer{driverName: n.driver})
	for _, name := range without {
		n.plugin.drivers.remove(name)
	}
	if err := n.plugin.Restore(); err != nil {
		n.Fatal(err)
	}
	n.volumes = volume.New(volume.Options{Root: filepath.Join(n.dir, "pods"), Source: n.objects, Plugins: []volume.Plugin{n.plugin}})
}

// clean checks that nothing of any pod is left: no mount, no record.
func (n *node) clean() {
	n.Helper()
	table, err := mounts.Table()
	if err != nil {
		n.Fatal(err)
	}
	for _, m := range table {
		if strings.HasPrefix(m.At, n.dir+"/") {
			n.Errorf("still mounted: %s", m.At)
		}
	}
	_ = filepath.WalkDir(n.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !strings.HasPrefix(path, n.driver.dir) && (e.Name() == recordName || e.Name() == "globalmount" || e.Name() == "mount") {
			n.Errorf("left on the disk: %s", path)
		}
		return nil
	})
}

// claim makes a bound claim of a volume of the driver.
func (n *node) claim(name string, change ...func(*corev1.PersistentVolume)) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}, Spec: corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, ClaimRef: &corev1.ObjectReference{UID: types.UID("claim-" + name)},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "h-" + name, VolumeAttributes: map[string]string{"a": "b"}}}}}
	for _, c := range change {
		c(pv)
	}
	n.objects.mu.Lock()
	defer n.objects.mu.Unlock()
	n.objects.volumes[pv.Name] = pv
	n.objects.claims[name] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("claim-" + name)},
		Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: pv.Name},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}
}

// pod returns a pod that mounts claims, each by its own name.
func (n *node) pod(uid string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p-" + uid, Namespace: "default", UID: types.UID(uid)},
		Spec: corev1.PodSpec{ServiceAccountName: "robot", Containers: []corev1.Container{{Name: "c"}}}}
	for _, claim := range claims {
		addVolume(pod, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	return pod
}

func addVolume(pod *corev1.Pod, v corev1.Volume) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, v)
	pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
}

func (n *node) setUp(pod *corev1.Pod) {
	n.Helper()
	if err := n.volumes.SetUp(n.Context(), pod); err != nil {
		n.Fatal(err)
	}
}

func (n *node) tearDown(uid string) {
	n.Helper()
	if err := n.volumes.TearDown(n.Context(), types.UID(uid)); err != nil {
		n.Fatal(err)
	}
}

// fails sets up a pod's volumes, which is to fail with what users are told.
func (n *node) fails(pod *corev1.Pod, want string) {
	n.Helper()
	err := n.volumes.SetUp(n.Context(), pod)
	if err == nil || err.Error() != want {
		n.Errorf("users are told %q, want %q", err, want)
	}
}

// called compares the calls to the driver since it was called last.
func (n *node) called(want string) {
	n.Helper()
	if got := n.driver.called(); got != want {
		n.Errorf("calls: %s; want %s", got, want)
	}
}

var internal = status.Error(codes.Internal, "no")
