package attachdetach

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

// fill makes a loop from objects.
func fill(t *testing.T, config controller.Config, objects ...controller.Object) (controller.Loop, informers.SharedInformerFactory) {
	factory := informers.NewSharedInformerFactory(nil, 0)
	loop := New(controller.Deps{Informers: factory, Config: config})
	for _, obj := range objects {
		prepare(obj)
		put(t, factory, obj)
	}
	return loop, factory
}

func put(t *testing.T, factory informers.SharedInformerFactory, obj controller.Object) {
	informer, err := factory.ForResource(controller.ResourceOf(obj))
	if err == nil {
		err = informer.Informer().GetIndexer().Add(obj)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func text(d controller.Decision) string {
	var all []string
	for _, a := range d.Actions {
		all = append(all, a.String())
	}
	if d.Then != nil {
		return strings.Join(append(all, text(d.Then(nil))), "\n")
	}
	return strings.Join(append(all, fmt.Sprint(d.RequeueAfter)), "\n")
}

func notReady(uses string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}, VolumesInUse: []corev1.UniqueVolumeName{corev1.UniqueVolumeName(uses)}}}
}

// A node that is not ready keeps what it uses for six minutes after the last pod has ended, or for good if timeouts force nothing.
func TestForcedAfterSixMinutes(t *testing.T) {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "uid-of-v"}}
	objects := func() []controller.Object {
		return []controller.Object{notReady("kubernetes.io/csi/example.com^v"), v.DeepCopy(),
			&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "v.node-1"}, Status: storagev1.VolumeAttachmentStatus{Attached: true}}}
	}
	key := controller.Key{Name: "node-1"}
	loop, _ := fill(t, controller.Config{}, objects()...)
	if got := text(loop.Reconcile(key, stories.Epoch)); !strings.HasSuffix(got, "6m0s") || strings.Contains(got, "delete") {
		t.Error(got)
	}
	if got := text(loop.Reconcile(key, stories.Epoch.Add(5*time.Minute))); !strings.HasSuffix(got, "1m0s") || strings.Contains(got, "delete") {
		t.Error(got)
	}
	if got := text(loop.Reconcile(key, stories.Epoch.Add(6*time.Minute))); !strings.Contains(got, "delete VolumeAttachment") {
		t.Error(got)
	}
	loop, _ = fill(t, controller.Config{DisableForceDetachOnTimeout: true}, objects()...)
	loop.Reconcile(key, stories.Epoch)
	if got := text(loop.Reconcile(key, stories.Epoch.Add(time.Hour))); strings.Contains(got, "delete") {
		t.Error(got)
	}
}

// Two nodes that are decided before the VolumeAttachment of one has been observed do not both get the volume.
func TestTakenByOne(t *testing.T) {
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"claim": "v"}}, Spec: corev1.PodSpec{NodeName: node}}
	}
	loop, factory := fill(t, controller.Config{}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "uid-of-v"}}, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "v", Namespace: "default", UID: "uid-of-v"}},
		pod("p", "node-1"), pod("q", "node-2"))
	first, second := controller.Key{Name: "node-1"}, controller.Key{Name: "node-2"}
	if got := text(loop.Reconcile(first, stories.Epoch)); !strings.Contains(got, "create VolumeAttachment") {
		t.Fatal(got)
	}
	if got := text(loop.Reconcile(second, stories.Epoch)); got != "1s" {
		t.Error(got)
	}
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "v.node-1"}}
	prepare(a)
	put(t, factory, a)
	loop.Reconcile(first, stories.Epoch)
	if got := text(loop.Reconcile(second, stories.Epoch)); !strings.Contains(got, "FailedAttachVolume: Waiting for detach for volume \"v\" Volume is already used by pod(s) p") {
		t.Error(got)
	}
	if got := text(loop.Reconcile(second, stories.Epoch)); got != "0s" {
		t.Errorf("it is told twice: %s", got)
	}
}
