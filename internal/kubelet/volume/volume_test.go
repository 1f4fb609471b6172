//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sys/unix"
)

func TestEmptyDir(t *testing.T) {
	f := newFixture(t)
	memory := corev1.Volume{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
		Medium: corev1.StorageMediumMemory, SizeLimit: ptr(resource.MustParse("8Mi"))}}}
	plain, grouped := newPod("1", emptyDir("disk"), memory), withGroup(newPod("2", emptyDir("disk"), memory), 1234)
	f.setUp(plain)
	f.setUp(grouped)
	if got, want := f.path(plain, "disk"), filepath.Join(f.dir, "pods/1/volumes/kubernetes.io~empty-dir/disk"); got != want {
		t.Errorf("the directory is %s, want %s", got, want)
	}
	for _, c := range []struct {
		pod          *corev1.Pod
		volume, want string
	}{{plain, "disk", "777 0:0"}, {plain, "memory", "1777 0:0"}, {grouped, "disk", "2777 0:1234"}, {grouped, "memory", "3777 0:1234"}} {
		if got := owner(t, f.path(c.pod, c.volume)); got != c.want {
			t.Errorf("%s of pod %s has %s, want %s", c.volume, c.pod.UID, got, c.want)
		}
		if err := os.WriteFile(f.path(c.pod, c.volume, "kept"), []byte("x"), 0o600); err != nil {
			t.Error(err)
		}
	}
	var s unix.Statfs_t
	if err := unix.Statfs(f.path(plain, "memory"), &s); err != nil || s.Type != unix.TMPFS_MAGIC || int64(s.Blocks)*s.Bsize != 8<<20 {
		t.Errorf("the volume in memory has type %x and %d bytes (%v)", s.Type, int64(s.Blocks)*s.Bsize, err)
	}
	f.Manager = f.restarted()
	for _, pod := range []*corev1.Pod{plain, grouped} {
		f.setUp(pod)
		for _, volume := range []string{"disk", "memory"} {
			if _, err := os.Stat(f.path(pod, volume, "kept")); err != nil {
				t.Errorf("after a restart: %v", err)
			}
			if got := owner(t, f.path(pod, volume, "kept")); !strings.HasPrefix(got, "600 ") {
				t.Errorf("a container's own file became %s", got)
			}
		}
	}
	if left, err := f.Left(); err != nil || fmt.Sprint(left) != "[1 2]" {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestMemorySize(t *testing.T) {
	f := newFixture(t)
	limited := newPod("1")
	limited.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("64Mi")}
	for _, c := range []struct {
		pod   *corev1.Pod
		limit *resource.Quantity
		want  int64
	}{{newPod("1"), nil, 1 << 30}, {newPod("1"), ptr(resource.MustParse("2Gi")), 1 << 30}, {newPod("1"), ptr(resource.MustParse("1Mi")), 1 << 20},
		{limited, nil, 64 << 20}, {limited, ptr(resource.MustParse("128Mi")), 64 << 20}, {limited, ptr(resource.MustParse("1Mi")), 1 << 20}, {limited, ptr(resource.MustParse("0")), 64 << 20}} {
		if got := f.memorySize(c.pod, c.limit); got != c.want {
			t.Errorf("a limit of %v gives %d bytes, want %d", c.limit, got, c.want)
		}
	}
}

func TestHugePageSize(t *testing.T) {
	pod := newPod("1")
	if _, err := hugePageSize("HugePages", pod); err == nil {
		t.Error("huge pages that the pod does not request")
	}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi")}
	for _, medium := range []corev1.StorageMedium{"HugePages", "HugePages-2Mi"} {
		if size, err := hugePageSize(medium, pod); size != "2Mi" || err != nil {
			t.Errorf("%s: %s %v", medium, size, err)
		}
	}
	if _, err := hugePageSize("HugePages-1Gi", pod); err == nil {
		t.Error("pages of another size")
	}
	pod.Spec.Containers[0].Resources.Requests["hugepages-1Gi"] = resource.MustParse("1Gi")
	if _, err := hugePageSize("HugePages", pod); err == nil {
		t.Error("pages of two sizes")
	}
	if size, err := hugePageSize("HugePages-1Gi", pod); size != "1Gi" || err != nil {
		t.Errorf("%s %v", size, err)
	}
	f := newFixture(t)
	err := f.SetUp(context.Background(), newPod("2", corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "Tape"}}}))
	failure(t, err, `MountVolume.SetUp failed for volume "v" : unknown storage medium "Tape"`)
}

func TestHostPath(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for name, mode := range map[string]uint32{"char": unix.S_IFCHR, "block": unix.S_IFBLK} {
		if err := unix.Mknod(at(name), mode|0o600, int(unix.Mkdev(7, 250))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(at("made-by-link"), at("dangling")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		kind corev1.HostPathType
		want string
	}{
		{at("dangling"), corev1.HostPathFileOrCreate, "hostPath type check failed, " + at("dangling") + " is not a file, unable to determine its type: stat " + at("dangling") + ": no such file or directory"},
		{dir, corev1.HostPathUnset, ""},
		{at("nothing"), corev1.HostPathUnset, ""},
		{dir, corev1.HostPathDirectory, ""},
		{at("file"), corev1.HostPathFile, ""},
		{at("socket"), corev1.HostPathSocket, ""},
		{at("char"), corev1.HostPathCharDev, ""},
		{at("block"), corev1.HostPathBlockDev, ""},
		{at("new/dir"), corev1.HostPathDirectoryOrCreate, ""},
		{at("new/dir"), corev1.HostPathDirectory, ""},
		{at("new/file"), corev1.HostPathFileOrCreate, ""},
		{at("new/file"), corev1.HostPathFile, ""},
		{at("file"), corev1.HostPathDirectory, "hostPath type check failed: " + at("file") + " is not a directory, it's a File"},
		{at("file"), corev1.HostPathDirectoryOrCreate, "hostPath type check failed: " + at("file") + " is not a directory, it's a File"},
		{dir, corev1.HostPathFileOrCreate, "hostPath type check failed: " + dir + " is not a file, it's a Directory"},
		{at("char"), corev1.HostPathBlockDev, "hostPath type check failed: " + at("char") + " is not a block device, it's a CharDevice"},
		{at("block"), corev1.HostPathSocket, "hostPath type check failed: " + at("block") + " is not a socket file, it's a BlockDevice"},
		{at("nothing"), corev1.HostPathFile, "hostPath type check failed, " + at("nothing") + " is not a file, unable to determine its type: stat " + at("nothing") + ": no such file or directory"},
		{dir + "/../x", corev1.HostPathUnset, "invalid HostPath `" + dir + "/../x`: must not contain '..'"},
		{dir, "Tape", "Tape is an invalid volume type"},
	} {
		err := checkHostPath(&corev1.HostPathVolumeSource{Path: c.path, Type: &c.kind})
		if got := fmt.Sprint(err); err == nil && c.want != "" || err != nil && got != c.want {
			t.Errorf("%s as %q: %v, want %s", c.path, c.kind, err, c.want)
		}
	}
	if err := checkHostPath(&corev1.HostPathVolumeSource{Path: dir}); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(at("made-by-link")); err == nil {
		t.Error("a file was made where a link leads")
	}
}

func TestUnusedVolumesAreNotMade(t *testing.T) {
	f := newFixture(t)
	pod := newPod("1", emptyDir("used"))
	pod.Spec.Volumes = append(pod.Spec.Volumes, configMap("unused", "does-not-exist"))
	f.setUp(pod)
	if _, err := f.Path(pod, "unused"); err == nil {
		t.Error("a volume that no container mounts was made")
	}
}

func TestKindsWithoutPlugin(t *testing.T) {
	f := newFixture(t)
	volume := func(name string, source corev1.VolumeSource) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: source}
	}
	pod := newPod("1", volume("iscsi", corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}}), emptyDir("good"),
		volume("csi", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "disks.example.com"}}),
		volume("git", corev1.VolumeSource{GitRepo: &corev1.GitRepoVolumeSource{}}))
	failure(t, f.SetUp(context.Background(), pod), `MountVolume.FindPluginBySpec failed for volume "iscsi" : no volume plugin matched`,
		`MountVolume.SetUp failed for volume "csi" : kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name disks.example.com not found in the list of registered CSI drivers`,
		"MountVolume.SetUp failed for volume \"git\" : git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the feature-gate `GitRepoVolumeDriver`")
	f.path(pod, "good") // made all the same
}

func TestClaims(t *testing.T) {
	f := newFixture(t)
	disk := filepath.Join(f.dir, "disk")
	if err := os.MkdirAll(filepath.Join(disk, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"data", "deep/data"} {
		if err := os.WriteFile(filepath.Join(disk, name), []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(f.dir, "outside")
	if err := errors.Join(os.WriteFile(outside, nil, 0o600), os.Symlink(outside, filepath.Join(disk, "link"))); err != nil {
		t.Fatal(err)
	}
	bind := func(name string, source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
		f.source.claims[name] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: types.UID("claim-" + name)},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source,
			ClaimRef: &corev1.ObjectReference{UID: types.UID("claim-" + name)}}}
		f.source.volumes[pv.Name] = pv
		return pv
	}
	claim := func(name string, readOnly bool) corev1.Volume {
		return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: readOnly}}}
	}
	bind("host", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: disk}})
	bind("local", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: disk}})

	host := newPod("host", claim("host", true))
	f.setUp(host)
	if got := f.path(host, "v"); got != disk {
		t.Errorf("the volume is at %s", got)
	}
	if mounts, err := f.Mounts(host, &host.Spec.Containers[0], nil); err != nil || !mounts[0].Readonly || mounts[0].HostPath != disk {
		t.Errorf("mounts %v %v", mounts, err)
	}

	local := withGroup(newPod("local", claim("local", false)), 4321)
	f.setUp(local)
	f.setUp(local) // again: nothing is mounted twice
	if got, want := f.path(local, "v"), filepath.Join(f.dir, "pods/local/volumes/kubernetes.io~local-volume/pv-local"); got != want {
		t.Errorf("the directory is %s, want %s", got, want)
	}
	if mounts, _ := mountsBelow(f.PodDir("local")); len(mounts) != 1 {
		t.Errorf("mounted: %v", mounts)
	}
	for name, want := range map[string]string{"": "2770 0:4321", "data": "660 0:4321", "deep": "2770 0:4321", "deep/data": "660 0:4321"} {
		if got := owner(t, f.path(local, "v", name)); got != want {
			t.Errorf("%q has %s, want %s", name, got, want)
		}
	}
	if got := owner(t, outside); got != "600 0:0" {
		t.Errorf("a file outside the volume that a link names has %s", got)
	}

	// The root is right, so OnRootMismatch leaves what is in it alone.
	if err := os.Chown(filepath.Join(disk, "data"), 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.TearDown(context.Background(), "local"); err != nil {
		t.Fatal(err)
	}
	local.Spec.SecurityContext.FSGroupChangePolicy = ptr(corev1.FSGroupChangeOnRootMismatch)
	f.setUp(local)
	if got := owner(t, filepath.Join(disk, "data")); got != "660 0:0" {
		t.Errorf("with OnRootMismatch the file has %s", got)
	}

	// Another pod has it read-only. Tearing down removes no data.
	reader := newPod("reader", claim("local", true))
	f.setUp(reader)
	if err := os.WriteFile(f.path(reader, "v", "data"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing to a read-only volume: %v", err)
	}
	for _, uid := range []types.UID{"local", "reader", "host"} {
		if err := f.TearDown(context.Background(), uid); err != nil {
			t.Fatal(err)
		}
	}
	if content, err := os.ReadFile(filepath.Join(disk, "deep/data")); string(content) != "precious" {
		t.Errorf("the data is %q now (%v)", content, err)
	}

	setUp := func(v corev1.Volume) error { return f.SetUp(context.Background(), newPod("bad", v)) }
	process := "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: error processing PVC n/"
	failure(t, setUp(claim("none", false)), process+`none: failed to fetch PVC from API server: persistentvolumeclaims "none" not found`)
	bind("unbound", corev1.PersistentVolumeSource{})
	f.source.claims["unbound"].Status.Phase = corev1.ClaimPending
	failure(t, setUp(claim("unbound", false)), process+"unbound: PVC is not bound")
	bind("stolen", corev1.PersistentVolumeSource{}).Spec.ClaimRef.UID = "other"
	failure(t, setUp(claim("stolen", false)), process+"stolen: found PV object pv-stolen but its pv.Spec.ClaimRef.UID other does not point to claim.UID claim-stolen")
	bind("csi", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}})
	failure(t, setUp(claim("csi", false)), `MountVolume.MountDevice failed for volume "pv-csi" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: `+
		"driver name d not found in the list of registered CSI drivers")
	bind("elsewhere", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: disk}}).Spec.NodeAffinity = &corev1.VolumeNodeAffinity{
		Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}}}}}}}
	failure(t, setUp(claim("elsewhere", false)), `MountVolume.NodeAffinity check failed for volume "pv-elsewhere" : no matching NodeSelectorTerms`)
	f.node.Labels = map[string]string{"zone": "b"}
	if err := setUp(claim("elsewhere", false)); err != nil {
		t.Error(err)
	}
	bind("gone", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: disk + "/gone"}})
	if err := setUp(claim("gone", false)); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a local volume that does not exist: %v", err)
	}
	bind("one", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: disk}}).Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	first := newPod("first", claim("one", false))
	f.setUp(first)
	f.setUp(first)
	failure(t, setUp(claim("one", false)), `MountVolume.SetUp failed for volume "pv-one" : volume uses the ReadWriteOncePod access mode and is already in use by another pod`)
}

func TestEphemeralClaim(t *testing.T) {
	f := newFixture(t)
	pod := newPod("1", corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	f.source.claims["p-1-scratch"] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "p-1-scratch", Namespace: "n", UID: "c"},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	f.source.volumes["pv"] = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: f.dir}}, ClaimRef: &corev1.ObjectReference{UID: "c"}}}
	if err := f.SetUp(context.Background(), pod); err == nil || !strings.Contains(err.Error(), "pod is not owner") {
		t.Errorf("a claim of somebody else: %v", err)
	}
	f.source.claims["p-1-scratch"].OwnerReferences = []metav1.OwnerReference{{UID: "1", Controller: ptr(true)}}
	f.setUp(pod)
}

func TestTearDownOfWhatIsInUse(t *testing.T) {
	f := newFixture(t)
	pod := newPod("1", corev1.Volume{Name: "m", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}})
	f.setUp(pod)
	open, err := os.Create(f.path(pod, "m", "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := unix.Mount("tmpfs", f.path(pod, "m"), "tmpfs", 0, ""); err != nil { // one on top of the other
		t.Fatal(err)
	}
	if err := f.TearDown(context.Background(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.PodDir(pod.UID)); !os.IsNotExist(err) {
		t.Errorf("the pod's directory: %v", err)
	}
	if err := f.TearDown(context.Background(), pod.UID); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestTearDownStopsWithItsContext(t *testing.T) {
	f := newFixture(t)
	pod := newPod("1", corev1.Volume{Name: "m", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}})
	f.setUp(pod)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.TearDown(ctx, pod.UID); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	f.path(pod, "m") // still there
}

func TestUIDsThatNameNoDirectory(t *testing.T) {
	f := newFixture(t)
	for _, uid := range []types.UID{"", ".", "..", "a/b", "../x"} {
		if err := f.SetUp(context.Background(), newPod(string(uid), emptyDir("v"))); err == nil {
			t.Errorf("volumes for %q", uid)
		}
		if err := f.TearDown(context.Background(), uid); err == nil {
			t.Errorf("%q torn down", uid)
		}
	}
}

func TestUsage(t *testing.T) {
	f := newFixture(t)
	f.source.set("web", map[string]string{"a": "1"})
	pod := newPod("1", emptyDir("disk"), configMap("config", "web"), corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
	f.setUp(pod)
	if err := os.WriteFile(f.path(pod, "disk", "file"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(f.path(pod, "disk", "file"), f.path(pod, "disk", "again")); err != nil {
		t.Fatal(err)
	}
	list, err := f.Usage(context.Background(), pod.UID)
	if err != nil || len(list) != 2 || list[0].Volume != "config" || list[1].Volume != "disk" {
		t.Fatalf("%+v %v", list, err)
	}
	if u := list[1]; u.Used < 1<<20 || u.Used >= 2<<20 || u.InodesUsed != 2 || u.Capacity == 0 || u.Available == 0 || u.Time.IsZero() {
		t.Errorf("%+v", u)
	}
	if list, err := f.Usage(context.Background(), "2"); list != nil || err != nil {
		t.Errorf("%v %v", list, err)
	}
}

// TestUsageWhileReplaced counts a volume in which a directory becomes a FIFO, or a link out of the volume, and a directory again, all the time.
func TestUsageWhileReplaced(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "large"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, place := range map[string]func(at string) error{
		"fifo": func(at string) error { return unix.Mkfifo(at, 0o600) },
		"link": func(at string) error { return os.Symlink(outside, at) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
			if err := errors.Join(os.Mkdir(a, 0o700), os.WriteFile(filepath.Join(a, "file"), []byte("x"), 0o600), place(b)); err != nil {
				t.Fatal(err)
			}
			counted := make(chan error, 1)
			go func() {
				counted <- func() error {
					for range 20000 {
						if u, err := usageOf(context.Background(), dir, true); err != nil || u.Used >= 1<<20 {
							return fmt.Errorf("%+v %w", u, err)
						}
					}
					return nil
				}()
			}()
			deadline := time.Now().Add(60 * time.Second)
			for {
				select {
				case err := <-counted:
					if err != nil {
						t.Error(err)
					}
					return
				default:
					if time.Now().After(deadline) {
						t.Fatal("usageCounter a volume blocks")
					}
				}
				if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestTearDownLeavesWhatOthersKeep(t *testing.T) {
	f := newFixture(t)
	pod := newPod("1", emptyDir("v"))
	f.setUp(pod)
	hosts := filepath.Join(f.PodDir(pod.UID), "etc-hosts")
	if err := os.WriteFile(hosts, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.TearDown(context.Background(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if left, err := f.Left(); len(left) != 0 || err != nil {
		t.Errorf("left: %v %v", left, err)
	}
	if err := os.Remove(hosts); err != nil {
		t.Error(err)
	}
	if err := f.TearDown(context.Background(), pod.UID); err != nil {
		t.Fatal(err)
	}
}

func TestManyAtOnce(t *testing.T) {
	f := newFixture(t)
	f.source.set("web", map[string]string{"a": "1"})
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			pod := newPod(fmt.Sprint("many", i), projected(tokenSource("", 3600)), configMap("config", "web"), emptyDir("dir"))
			for range 3 {
				if err := f.SetUp(context.Background(), pod); err != nil {
					t.Error(err)
				}
				c := pod.Spec.Containers[0]
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "dir", MountPath: "/x", SubPath: "a/b"})
				if _, err := f.Mounts(pod, &c, nil); err != nil {
					t.Error(err)
				}
			}
			if err := f.TearDown(context.Background(), pod.UID); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if left, err := f.Left(); err != nil || len(left) != 0 || len(f.pods) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
}
