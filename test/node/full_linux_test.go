package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// smallDisk is enough for a cluster and a few small images.
const smallDisk = "size=640m"

// A pod that fills the disk of the node, which is also that of the API, is evicted with a message that says why. Its neighbour stays, and when there has been
// room for a while, the node admits pods again.
func diskFull(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, smallDisk); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	c := newClusterIn(t, disk)
	s := c.space(t)
	s.create(newPod("neighbour", testserver("main")))
	was := s.running("neighbour")
	fills := newPod("fills", sh("main", "dd if=/dev/zero of=/scratch/file bs=1M; echo full; "+forever))
	fills.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	fills.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
	s.create(fills)

	// Writes fail while there is no room, and none hangs.
	written, failed := 0, 0
	var why error
	var p *corev1.Pod
	s.await("the pod to be evicted", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := s.api.CoreV1().ConfigMaps(s.name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}}, metav1.CreateOptions{})
		if written++; err != nil {
			failed, why = failed+1, err
		}
		if ctx.Err() != nil {
			t.Errorf("a write hangs: %v", err)
		}
		p, err = s.api.CoreV1().Pods(s.name).Get(ctx, "fills", metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodFailed
	})
	t.Logf("%d of %d writes to the API failed meanwhile: %v", failed, written, why)
	if p.Status.Reason != "Evicted" || !strings.HasPrefix(p.Status.Message, "The node was low on resource: ephemeral-storage. Threshold quantity: ") {
		t.Errorf("the pod failed for %s: %s", p.Status.Reason, p.Status.Message)
	}
	if c := condition(p, corev1.DisruptionTarget); c.Status != corev1.ConditionTrue || c.Reason != "TerminationByKubelet" {
		t.Errorf("its condition: %+v", c)
	}
	s.awaitEvent("fills", "Evicted: The node was low on resource: ephemeral-storage")
	s.await("room on the disk", func() bool {
		var now unix.Statfs_t
		return unix.Statfs(disk, &now) == nil && now.Bavail > now.Blocks/4
	})
	node := func() *corev1.Node {
		n, err := s.api.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	s.await("the node to say that its disk is full", func() bool { return nodeCondition(node(), corev1.NodeDiskPressure).Status == corev1.ConditionTrue })
	tainted := func() bool {
		return slices.ContainsFunc(node().Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeDiskPressure })
	}
	s.await("the node to be tainted", tainted)
	events, err := s.api.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: fields.Set{"involvedObject.kind": "Node", "reason": "EvictionThresholdMet"}.String()})
	if err != nil || len(events.Items) == 0 || events.Items[0].Message != "Attempting to reclaim ephemeral-storage" {
		t.Errorf("events about the node: %+v, %v", events, err)
	}
	if got := get(fmt.Sprintf("http://%s:8080/hostname", was.Status.PodIP)); got != "neighbour\n" {
		t.Errorf("the neighbour says %q", got)
	}
	if is := s.get("neighbour"); container(is, "main").ContainerID != container(was, "main").ContainerID || is.Status.Phase != corev1.PodRunning {
		t.Errorf("the neighbour was %+v and is %+v", was.Status, is.Status)
	}
	s.create(newPod("later", sh("main", forever)))
	began := time.Now()
	for deadline := time.Now().Add(7 * time.Minute); tainted() && time.Now().Before(deadline); { // it says so for five minutes after it has room again
		time.Sleep(time.Second)
	}
	s.running("later")
	t.Logf("the node took pods again after %.0f s", time.Since(began).Seconds())
	s.unharmed(was)
}
