package apps

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// replicaSet creates a ReplicaSet of the image "old".
func (c cluster) replicaSet(replicas int32) *appsv1.ReplicaSet {
	c.Helper()
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: web()}, Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: selectWeb(), Template: template("old")}}
	return must[*appsv1.ReplicaSet](c)(c.api.AppsV1().ReplicaSets("default").Create(c.ctx, rs, metav1.CreateOptions{}))
}

// replicationController creates a ReplicationController of the image "old".
func (c cluster) replicationController(replicas int32) *corev1.ReplicationController {
	c.Helper()
	t := template("old")
	rc := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: web()}, Spec: corev1.ReplicationControllerSpec{Replicas: &replicas, Selector: web(), Template: &t}}
	return must[*corev1.ReplicationController](c)(c.api.CoreV1().ReplicationControllers("default").Create(c.ctx, rc, metav1.CreateOptions{}))
}

func TestReplicaSetAdoptsAndReleases(t *testing.T) {
	c := start(t)
	c.stray("stray")
	rs := c.replicaSet(1)
	c.adopted("stray", rs.UID)
	c.running(1, "old")
	c.relabel("stray")
	c.released("stray")
	if pods := c.running(1, "old"); pods[0].Name == "stray" {
		t.Error("it was not replaced")
	}
}

func TestReplicationControllerAdopts(t *testing.T) {
	c := start(t)
	c.stray("stray")
	rc := c.replicationController(1)
	c.adopted("stray", rc.UID)
	c.running(1, "old")
}

func TestReplicationControllerReleases(t *testing.T) {
	c := start(t)
	c.replicationController(1)
	pod := c.running(1, "old")[0].Name
	c.relabel(pod)
	c.released(pod)
	if pods := c.running(1, "old"); pods[0].Name == pod {
		t.Error("it was not replaced")
	}
}

func TestReplicaSetScale(t *testing.T) {
	c := start(t)
	c.replicaSet(1)
	c.running(1, "old")
	sets := c.api.AppsV1().ReplicaSets("default")
	checkScale(c, func() (*autoscalingv1.Scale, error) { return sets.GetScale(c.ctx, "web", metav1.GetOptions{}) },
		func(s *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
			return sets.UpdateScale(c.ctx, "web", s, metav1.UpdateOptions{})
		},
		func(p []byte) error {
			_, err := sets.Patch(c.ctx, "web", types.StrategicMergePatchType, p, metav1.PatchOptions{}, "scale")
			return err
		}, "old")
}

func TestReplicationControllerScale(t *testing.T) {
	c := start(t)
	c.replicationController(1)
	c.running(1, "old")
	sets := c.api.CoreV1().ReplicationControllers("default")
	checkScale(c, func() (*autoscalingv1.Scale, error) { return sets.GetScale(c.ctx, "web", metav1.GetOptions{}) },
		func(s *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
			return sets.UpdateScale(c.ctx, "web", s, metav1.UpdateOptions{})
		},
		func(p []byte) error {
			_, err := sets.Patch(c.ctx, "web", types.StrategicMergePatchType, p, metav1.PatchOptions{}, "scale")
			return err
		}, "old")
}

func TestReplicaSetReplacedAndPatched(t *testing.T) {
	c := start(t)
	c.replicaSet(1)
	c.running(1, "old")
	sets := c.api.AppsV1().ReplicaSets("default")
	c.eventually(func() string {
		rs := must[*appsv1.ReplicaSet](c)(sets.Get(c.ctx, "web", metav1.GetOptions{}))
		rs.Spec.Replicas = new(int32(2))
		if _, err := sets.Update(c.ctx, rs, metav1.UpdateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	c.running(2, "old")
	p := patch(object{"metadata": object{"labels": object{"test-rs": "patched"}}, "spec": object{"replicas": 3, "template": object{"spec": object{"terminationGracePeriodSeconds": 0, "containers": []object{{"name": "c", "image": "v2"}}}}}})
	got := must[*appsv1.ReplicaSet](c)(sets.Patch(c.ctx, "web", types.StrategicMergePatchType, p, metav1.PatchOptions{}))
	if got.Labels["test-rs"] != "patched" || *got.Spec.Replicas != 3 || *got.Spec.Template.Spec.TerminationGracePeriodSeconds != 0 {
		t.Errorf("%+v", got)
	}
	// The pods that are there stay as they are; the next one is of the new template.
	c.eventually(func() string {
		images := map[string]int{}
		for _, pod := range c.pods() {
			images[pod.Spec.Containers[0].Image]++
		}
		if images["old"] != 2 || images["v2"] != 1 {
			return fmt.Sprintf("two old pods and a new one: %v", images)
		}
		return ""
	})
}

func TestReplicaSetCollection(t *testing.T) {
	c := start(t)
	c.replicaSet(3)
	c.running(3, "old")
	if list := must[*appsv1.ReplicaSetList](c)(c.api.AppsV1().ReplicaSets("").List(c.ctx, metav1.ListOptions{LabelSelector: ofWeb})); len(list.Items) != 1 {
		t.Errorf("found %d", len(list.Items))
	}
	c.ok(c.api.AppsV1().ReplicaSets("default").DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: ofWeb}))
	if list := must[*appsv1.ReplicaSetList](c)(c.api.AppsV1().ReplicaSets("").List(c.ctx, metav1.ListOptions{LabelSelector: ofWeb})); len(list.Items) != 0 {
		t.Errorf("%d are left", len(list.Items))
	}
	c.running(0, "")
}

func TestReplicationControllerQuota(t *testing.T) {
	c := start(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")}}}
	_, err := c.api.CoreV1().ResourceQuotas("default").Create(c.ctx, quota, metav1.CreateOptions{})
	c.ok(err)
	c.eventually(func() string {
		q := must[*corev1.ResourceQuota](c)(c.api.CoreV1().ResourceQuotas("default").Get(c.ctx, "few", metav1.GetOptions{}))
		if hard := q.Status.Hard[corev1.ResourcePods]; hard.Value() != 2 {
			return "the quota known to the server"
		}
		return ""
	})
	c.replicationController(3)
	failed := func() bool {
		rc := must[*corev1.ReplicationController](c)(c.api.CoreV1().ReplicationControllers("default").Get(c.ctx, "web", metav1.GetOptions{}))
		return rc.Status.ObservedGeneration == rc.Generation && slices.ContainsFunc(rc.Status.Conditions, func(c corev1.ReplicationControllerCondition) bool {
			return c.Type == corev1.ReplicationControllerReplicaFailure && c.Status == corev1.ConditionTrue && c.Reason == "FailedCreate"
		})
	}
	c.eventually(func() string {
		if !failed() {
			return "a condition that says why there are too few"
		}
		return ""
	})
	_, err = c.api.CoreV1().ReplicationControllers("default").Patch(c.ctx, "web", types.MergePatchType, patch(object{"spec": object{"replicas": 2}}), metav1.PatchOptions{})
	c.ok(err)
	c.eventually(func() string {
		if failed() {
			return "that to go"
		}
		return ""
	})
	c.running(2, "old")
}

func TestReplicationControllerLifecycle(t *testing.T) {
	c := start(t)
	sets := c.api.CoreV1().ReplicationControllers("default")
	w := must[watch.Interface](c)(sets.Watch(c.ctx, metav1.ListOptions{LabelSelector: ofWeb}))
	defer w.Stop()
	c.replicationController(1)
	c.running(1, "old")
	got := must[*corev1.ReplicationController](c)(sets.Patch(c.ctx, "web", types.StrategicMergePatchType, patch(object{"metadata": object{"labels": object{"patched": "yes"}}}), metav1.PatchOptions{}))
	if got.Labels["patched"] != "yes" {
		t.Errorf("patched: %v", got.Labels)
	}
	got = must[*corev1.ReplicationController](c)(sets.Patch(c.ctx, "web", types.StrategicMergePatchType, patch(object{"status": object{"readyReplicas": 0, "availableReplicas": 0}}), metav1.PatchOptions{}, "status"))
	if got.Status.ReadyReplicas != 0 {
		t.Errorf("patched: %+v", got.Status)
	}
	c.eventually(func() string {
		if rc := must[*corev1.ReplicationController](c)(sets.Get(c.ctx, "web", metav1.GetOptions{})); rc.Status.ReadyReplicas != 1 {
			return "the controller to write the status again"
		}
		return ""
	})
	_, err := sets.Patch(c.ctx, "web", types.StrategicMergePatchType, patch(object{"spec": object{"replicas": 2}}), metav1.PatchOptions{}, "scale")
	c.ok(err)
	c.running(2, "old")
	c.eventually(func() string {
		rc := must[*corev1.ReplicationController](c)(sets.Get(c.ctx, "web", metav1.GetOptions{}))
		rc.Annotations = map[string]string{"updated": "yes"}
		if _, err := sets.Update(c.ctx, rc, metav1.UpdateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	if list := must[*corev1.ReplicationControllerList](c)(c.api.CoreV1().ReplicationControllers("").List(c.ctx, metav1.ListOptions{LabelSelector: "patched=yes"})); len(list.Items) != 1 || list.Items[0].Annotations["updated"] != "yes" {
		t.Errorf("found %v", list.Items)
	}
	c.ok(sets.DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: ofWeb}))
	for e := range w.ResultChan() {
		if e.Type == watch.Deleted {
			break
		}
	}
	if _, err := sets.Get(c.ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
	for _, p := range c.running(2, "old") { // deleting a ReplicationController orphans its pods by default
		c.released(p.Name)
	}
}
