package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// faultySet is a StatefulSet whose pods write to their claims all the time.
type faultySet struct {
	name, class string
	replicas    int32
}

// writer appends a sequence of numbers to a volume. It reports what it has found, and each number that is on the disk; checkReport reads that.
const writer = `
trap 'exit 0' TERM
process=$(cat /proc/sys/kernel/random/uuid) log=/data/log report=/reports/$POD
n=0
if [ -e /data/volume ]; then
  n=$(awk '$1 != NR { broken = 1 } END { print broken ? "broken" : NR }' $log)
  [ "$n" != broken ] || { echo "broken $process $(cat /data/volume)" >>$report; exit 1; }
else
  : >$log
  echo $process >/data/new && sync /data/new && mv /data/new /data/volume
fi
echo "start $process $(cat /data/volume) $n" >>$report
while :; do
  n=$((n + 1))
  echo $n >>$log && sync $log || { echo "failed $process $n" >>$report; exit 1; }
  echo "ack $process $n" >>$report
  sleep 0.2 & wait $!
done
`

// classes creates the driver's objects, and waits until nodes know the driver.
func (v *volumeFaults) classes() {
	v.t.Helper()
	attach, expand, policy := true, true, storagev1.NoneFSGroupPolicy
	if _, err := v.api.StorageV1().CSIDrivers().Create(v.t.Context(), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: sharedDriver},
		Spec: storagev1.CSIDriverSpec{AttachRequired: &attach, FSGroupPolicy: &policy}}, metav1.CreateOptions{}); err != nil {
		v.t.Fatal(err)
	}
	if _, err := v.api.StorageV1().StorageClasses().Create(v.t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "shared"},
		Provisioner: sharedDriver, AllowVolumeExpansion: &expand}, metav1.CreateOptions{}); err != nil {
		v.t.Fatal(err)
	}
	for _, node := range v.nodes {
		eventually(v.t, node+" knows the driver", func() error {
			n, err := v.api.StorageV1().CSINodes().Get(v.t.Context(), node, metav1.GetOptions{})
			if err == nil && !slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == sharedDriver }) {
				err = fmt.Errorf("it knows %v", n.Spec.Drivers)
			}
			return err
		})
	}
}

// newSet creates a StatefulSet with claims of a class, and a budget for it.
func (v *volumeFaults) newSet(name, class string, replicas int32) *faultySet {
	v.t.Helper()
	labels, grace, directory, one := map[string]string{"app": name}, int64(10), corev1.HostPathDirectory, intstr.FromInt32(1)
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		PodManagementPolicy: appsv1.ParallelPodManagement,
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace,
			Volumes: []corev1.Volume{{Name: "reports", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: sharedDir + "/reports", Type: &directory}}}},
			Containers: []corev1.Container{{Name: "writer", Image: "busybox", ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sh", "-c", writer},
				Env:          []corev1.EnvVar{{Name: "POD", ValueFrom: field("metadata.name")}},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "reports", MountPath: "/reports"}}}}}},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")}}}}}}}
	if _, err := v.api.AppsV1().StatefulSets("default").Create(v.t.Context(), set, metav1.CreateOptions{}); err != nil {
		v.t.Fatal(err)
	}
	if _, err := v.api.PolicyV1().PodDisruptionBudgets("default").Create(v.t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}}}, metav1.CreateOptions{}); err != nil {
		v.t.Fatal(err)
	}
	return &faultySet{name: name, class: class, replicas: replicas}
}

// gone is the error of a deletion, unless it is that the object is gone or another one.
func gone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// settleTime bounds how long it takes until nothing remains to be done after a fault: a kubelet looks at a running pod's volumes every 60 to 90 seconds.
const settleTime = 4 * time.Minute

// settle waits until everything is as the sets want it and every pod writes, and checks what the checker has seen.
func (v *volumeFaults) settle() {
	v.t.Helper()
	for _, node := range v.nodes {
		v.ready(v.t, node, true)
	}
	for _, s := range v.sets {
		within(v.t, settleTime, s.name+" has its pods", func() error { return v.complete(s) })
	}
	within(v.t, settleTime, "there is what the sets need and no more", func() error { return v.exact() })
	before := v.reported()
	eventually(v.t, "every pod writes", func() error {
		now := v.reported()
		for _, s := range v.sets {
			for i := range s.replicas {
				if name := fmt.Sprintf("%s-%d", s.name, i); now[name] <= before[name] {
					return fmt.Errorf("%s does not", name)
				}
			}
		}
		return nil
	})
	v.checker.check(v.t, filepath.Join(v.dir, "reports"))
}

// reported returns the length of pods' reports.
func (v *volumeFaults) reported() map[string]int64 {
	sizes := map[string]int64{}
	entries, _ := os.ReadDir(filepath.Join(v.dir, "reports"))
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			sizes[e.Name()] = info.Size()
		}
	}
	return sizes
}

// complete reports whether a set has all its pods at their newest revision, and they are ready.
func (v *volumeFaults) complete(s *faultySet) error {
	ctx, cancel := briefly(v.t.Context())
	defer cancel()
	set, err := v.api.AppsV1().StatefulSets("default").Get(ctx, s.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	st := set.Status
	if st.ObservedGeneration != set.Generation || st.Replicas != s.replicas || st.ReadyReplicas != s.replicas || st.CurrentRevision != st.UpdateRevision || st.CurrentReplicas != s.replicas {
		return fmt.Errorf("its status is %+v", st)
	}
	return nil
}

// exact reports whether there are exactly the claims, volumes, attachments, mounts and files that the sets' pods use, and the claims that were retained.
func (v *volumeFaults) exact() error {
	ctx, cancel := briefly(v.t.Context())
	defer cancel()
	pods, err := v.api.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	claims, err := v.api.CoreV1().PersistentVolumeClaims("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	volumes, err := v.api.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	attachments, err := v.api.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	claimNamed, volumeNamed := map[string]*corev1.PersistentVolumeClaim{}, map[string]*corev1.PersistentVolume{}
	for i := range volumes.Items {
		volumeNamed[volumes.Items[i].Name] = &volumes.Items[i]
		v.checker.seen(&volumes.Items[i])
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		v.checker.seen(c) // its informer may still be waiting to connect again
		claimNamed[c.Name] = c
		volume := volumeNamed[c.Spec.VolumeName]
		if c.Status.Phase != corev1.ClaimBound || c.DeletionTimestamp != nil || volume == nil || volume.Status.Phase != corev1.VolumeBound || volume.Spec.ClaimRef.UID != c.UID {
			return fmt.Errorf("claim %s is %s", c.Name, c.Status.Phase)
		}
		if has, wanted := c.Status.Capacity[corev1.ResourceStorage], c.Spec.Resources.Requests[corev1.ResourceStorage]; has.Cmp(wanted) < 0 || len(c.Status.Conditions) > 0 || len(c.Status.AllocatedResourceStatuses) > 0 {
			return fmt.Errorf("claim %s has %s, wants %s: %+v", c.Name, has.String(), wanted.String(), c.Status)
		}
	}
	if len(volumes.Items) != len(claims.Items) {
		return fmt.Errorf("there are %d PersistentVolumes for %d claims", len(volumes.Items), len(claims.Items))
	}
	wanted := newInventory()
	for i := range volumes.Items {
		if p := &volumes.Items[i]; p.Spec.CSI.Driver == sharedDriver {
			wanted.add("directory %s", p.Spec.CSI.VolumeHandle)
		} else {
			wanted.add("image %s on %s", p.Name, p.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0])
		}
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		claim := claimNamed["data-"+p.Name]
		if p.DeletionTimestamp != nil || claim == nil {
			return fmt.Errorf("pod %s is being deleted, or has no claim", p.Name)
		}
		wanted.add("pod %s on %s", p.UID, p.Spec.NodeName)
		if volume := volumeNamed[claim.Spec.VolumeName]; volume.Spec.CSI.Driver == sharedDriver {
			wanted.add("attachment of %s to %s: true", volume.Name, p.Spec.NodeName)
			wanted.add("%s is attached to %s", volume.Spec.CSI.VolumeHandle, p.Spec.NodeName)
			wanted.add("%s is mounted on %s", volume.Spec.CSI.VolumeHandle, p.Spec.NodeName)
		} else {
			wanted.add("loop device of %s", volume.Name)
			if err := v.hasSize(p, volume); err != nil {
				return err
			}
		}
	}
	found := newInventory()
	for _, a := range attachments.Items {
		found.add("attachment of %s to %s: %v", *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName, a.Status.Attached)
	}
	if err := v.take(found, volumeNamed); err != nil {
		return err
	}
	return wanted.compare(found)
}

// root is where this machine sees the root of a node, with what is mounted there.
func (v *volumeFaults) root(node string) string {
	return fmt.Sprintf("/proc/%d/root", v.checker.nodes[node].InitPID)
}

// take adds what there is on the nodes and on the shared directory.
func (v *volumeFaults) take(found *inventory, volumes map[string]*corev1.PersistentVolume) error {
	names := []string{}
	for name := range volumes {
		names = append(names, name)
	}
	for _, node := range v.nodes {
		for id := range mountedVolumes(v.checker.nodes[node].InitPID) {
			found.add("%s is mounted on %s", id, node)
		}
		for kind, pattern := range map[string]string{"pod": "/var/lib/kubelet/pods/*", "image": "/var/lib/skiff/volumes/*"} {
			paths, err := filepath.Glob(v.root(node) + pattern)
			if err != nil {
				return err
			}
			for _, path := range paths {
				found.add("%s %s on %s", kind, strings.TrimSuffix(filepath.Base(path), ".img"), node)
			}
		}
	}
	for _, name := range attached(names) {
		found.add("loop device of %s", name)
	}
	directories, err := os.ReadDir(filepath.Join(v.dir, "csi", "volumes"))
	if err != nil {
		return err
	}
	for _, d := range directories {
		found.add("directory %s", d.Name())
		nodes, err := attachedDirectory(filepath.Join(v.dir, "csi", "volumes", d.Name(), "thing.json"))
		if err != nil {
			return err
		}
		for _, node := range nodes {
			found.add("%s is attached to %s", d.Name(), node)
		}
	}
	return nil
}

// hasSize returns an error if the file system of a pod's local volume is not as large as its volume, but for what a file system needs itself.
func (v *volumeFaults) hasSize(p *corev1.Pod, volume *corev1.PersistentVolume) error {
	var s unix.Statfs_t
	at := v.root(p.Spec.NodeName) + "/var/lib/kubelet/pods/" + string(p.UID) + "/volumes/kubernetes.io~csi/" + volume.Name + "/mount"
	if err := unix.Statfs(at, &s); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	const journal = 4 << 20
	capacity := volume.Spec.Capacity[corev1.ResourceStorage]
	if has := int64(s.Blocks) * s.Bsize; has < capacity.Value()*8/10-journal || has > capacity.Value() {
		return fmt.Errorf("the file system of %s has %d bytes of %s", volume.Name, has, capacity.String())
	}
	return nil
}

// end deletes all, and waits until nothing is left.
func (v *volumeFaults) end() {
	v.t.Helper()
	background := metav1.DeletePropagationBackground
	for _, s := range v.sets {
		v.insist("delete "+s.name, func(ctx context.Context) error {
			return gone(v.api.AppsV1().StatefulSets("default").Delete(ctx, s.name, metav1.DeleteOptions{PropagationPolicy: &background}))
		})
	}
	v.insist("delete all claims", func(ctx context.Context) error {
		return v.api.CoreV1().PersistentVolumeClaims("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	v.sets = nil
	within(v.t, settleTime, "nothing is left", func() error {
		claims, err := v.api.CoreV1().PersistentVolumeClaims("default").List(v.t.Context(), metav1.ListOptions{})
		if err == nil && len(claims.Items) > 0 {
			err = fmt.Errorf("%d claims are left", len(claims.Items))
		}
		return errors.Join(err, v.exact())
	})
	for _, node := range v.nodes {
		for line := range strings.Lines(v.inside(v.t, node, "cat", "/proc/self/mountinfo")) {
			if at := strings.Fields(line)[4]; strings.Contains(at, "/kubernetes.io") || strings.Contains(at, "/lib/kubelet/pods/") {
				v.t.Errorf("%s has %s mounted", node, at)
			}
		}
		for _, pattern := range []string{"/var/lib/kubelet/plugins/kubernetes.io/csi/*/*", "/var/lib/kubelet/pods/*", "/var/lib/skiff/volumes/*"} {
			if left, _ := filepath.Glob(v.root(node) + pattern); len(left) > 0 {
				v.t.Errorf("%s has %v left", node, left)
			}
		}
	}
	v.checker.check(v.t, filepath.Join(v.dir, "reports"))
	v.t.Logf("the checker observed %d changes", v.checker.observed)
	if v.checker.observed == 0 {
		v.t.Error("the checker has observed nothing")
	}
}
