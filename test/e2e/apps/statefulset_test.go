package apps

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// statefulSet creates a StatefulSet.
func (c cluster) statefulSet(replicas int32, changes ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	c.Helper()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: web()},
		Spec: appsv1.StatefulSetSpec{Replicas: &replicas, ServiceName: "web", Selector: selectWeb(), Template: template("v1")}}
	for _, change := range changes {
		change(set)
	}
	return must[*appsv1.StatefulSet](c)(c.api.AppsV1().StatefulSets("default").Create(c.ctx, set, metav1.CreateOptions{}))
}

// gated makes pods ready only when setReady has been called for them.
func gated(set *appsv1.StatefulSet) {
	set.Spec.Template.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}}
}

const gate = "example.com/up"

// setReady makes a gated pod ready, or not ready.
func (c cluster) setReady(name string, ready bool) {
	c.Helper()
	status := map[bool]string{true: "True", false: "False"}[ready]
	c.eventually(func() string {
		p := patch(object{"status": object{"conditions": []object{{"type": gate, "status": status}}}})
		if _, err := c.api.CoreV1().Pods("default").Patch(c.ctx, name, types.StrategicMergePatchType, p, metav1.PatchOptions{}, "status"); err != nil {
			return err.Error()
		}
		return ""
	})
	c.eventually(func() string {
		pod := must[*corev1.Pod](c)(c.api.CoreV1().Pods("default").Get(c.ctx, name, metav1.GetOptions{}))
		if isReady(pod) != ready {
			return fmt.Sprintf("%s with Ready %s", name, status)
		}
		return ""
	})
}

// goes makes a gated pod ready that is deleted then.
func (c cluster) goes(name string) {
	c.Helper()
	p := patch(object{"status": object{"conditions": []object{{"type": gate, "status": "True"}}}})
	_, err := c.api.CoreV1().Pods("default").Patch(c.ctx, name, types.StrategicMergePatchType, p, metav1.PatchOptions{}, "status")
	c.ok(err)
}

// patchSet patches the StatefulSet.
func (c cluster) patchSet(changes object) {
	c.Helper()
	_, err := c.api.AppsV1().StatefulSets("default").Patch(c.ctx, "web", types.StrategicMergePatchType, patch(changes), metav1.PatchOptions{})
	c.ok(err)
}

func scaledTo(replicas int) object { return object{"spec": object{"replicas": replicas}} }

func withImage(image string) object {
	return object{"spec": object{"template": object{"spec": object{"containers": []object{{"name": "c", "image": image}}}}}}
}

// setStatus waits until the StatefulSet's status is of its generation and as wanted.
func (c cluster) setStatus(what string, as func(appsv1.StatefulSetStatus) bool) *appsv1.StatefulSet {
	c.Helper()
	var set *appsv1.StatefulSet
	c.eventually(func() string {
		set = must[*appsv1.StatefulSet](c)(c.api.AppsV1().StatefulSets("default").Get(c.ctx, "web", metav1.GetOptions{}))
		if set.Status.ObservedGeneration != set.Generation || !as(set.Status) {
			return fmt.Sprintf("%s: %+v", what, set.Status)
		}
		return ""
	})
	return set
}

// allReady waits until the status says that n pods are there and ready, and all of the update revision.
func (c cluster) allReady(n int32) *appsv1.StatefulSet {
	c.Helper()
	return c.setStatus(fmt.Sprint(n, " updated and ready"), func(s appsv1.StatefulSetStatus) bool {
		return s.Replicas == n && s.ReadyReplicas == n && s.AvailableReplicas == n && s.UpdatedReplicas == n && s.CurrentReplicas == n && s.CurrentRevision == s.UpdateRevision
	})
}

// record records what happens to pods until the test ends. The returned function waits until the events of a type are these, in this order.
func (c cluster) record() func(kind watch.EventType, want ...string) {
	c.Helper()
	w := must[watch.Interface](c)(c.api.CoreV1().Pods("default").Watch(c.ctx, metav1.ListOptions{LabelSelector: ofWeb}))
	c.Cleanup(w.Stop)
	seen := map[watch.EventType][]string{}
	return func(kind watch.EventType, want ...string) {
		c.Helper()
		c.eventually(func() string {
			for {
				select {
				case e := <-w.ResultChan():
					if pod, ok := e.Object.(*corev1.Pod); ok {
						seen[e.Type] = append(seen[e.Type], pod.Name)
					}
					continue
				default:
				}
				break
			}
			if !slices.Equal(seen[kind], want) {
				return fmt.Sprintf("%v %v, there was %v", want, kind, seen[kind])
			}
			return ""
		})
	}
}

func TestStatefulSetScalesInOrder(t *testing.T) {
	c := start(t)
	expect := c.record()
	c.statefulSet(1, gated)
	expect(watch.Added, "web-0")
	c.patchSet(scaledTo(3))
	c.setStatus("one pod, not ready", func(s appsv1.StatefulSetStatus) bool { return s.Replicas == 1 && s.ReadyReplicas == 0 })
	expect(watch.Added, "web-0") // it is not ready
	c.setReady("web-0", true)
	expect(watch.Added, "web-0", "web-1")
	c.setReady("web-1", true)
	expect(watch.Added, "web-0", "web-1", "web-2")
	c.setReady("web-2", true)
	c.allReady(3)
	for i, pod := range c.pods() {
		if l := pod.Labels; l["statefulset.kubernetes.io/pod-name"] != pod.Name || l["apps.kubernetes.io/pod-index"] != fmt.Sprint(i) || pod.Spec.Hostname != pod.Name || pod.Spec.Subdomain != "web" {
			t.Errorf("%s: %v, host %s.%s", pod.Name, l, pod.Spec.Hostname, pod.Spec.Subdomain)
		}
	}

	for _, name := range []string{"web-0", "web-1", "web-2"} {
		c.setReady(name, false)
	}
	c.setStatus("no pod ready", func(s appsv1.StatefulSetStatus) bool { return s.ReadyReplicas == 0 })
	c.patchSet(scaledTo(0))
	c.setStatus("all three pods", func(s appsv1.StatefulSetStatus) bool { return s.Replicas == 3 && s.CurrentReplicas == 3 })
	expect(watch.Deleted) // web-2 is not ready, and neither are those below it
	c.setReady("web-1", true)
	expect(watch.Deleted)
	c.goes("web-2")
	expect(watch.Deleted, "web-2", "web-1", "web-0") // web-0 is the only one that is not ready
	c.setStatus("none left", func(s appsv1.StatefulSetStatus) bool { return s.Replicas == 0 })
}

func TestStatefulSetScalesInParallel(t *testing.T) {
	c := start(t)
	c.statefulSet(1, gated, func(set *appsv1.StatefulSet) { set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement })
	c.patchSet(scaledTo(3))
	c.setStatus("three pods, none ready", func(s appsv1.StatefulSetStatus) bool { return s.Replicas == 3 && s.ReadyReplicas == 0 })
	for _, name := range []string{"web-2", "web-0", "web-1"} {
		c.setReady(name, true)
	}
	c.allReady(3)
	c.setReady("web-0", false)
	c.patchSet(scaledTo(0))
	c.setStatus("none left", func(s appsv1.StatefulSetStatus) bool { return s.Replicas == 0 })
}

func TestStatefulSetRecreatesFailedPods(t *testing.T) {
	c := start(t)
	c.statefulSet(1)
	pods := c.running(1, "v1")
	for _, phase := range []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded} {
		before := pods[0].UID
		c.eventually(func() string {
			pod := must[*corev1.Pod](c)(c.api.CoreV1().Pods("default").Get(c.ctx, "web-0", metav1.GetOptions{}))
			pod.Status.Phase = phase
			if _, err := c.api.CoreV1().Pods("default").UpdateStatus(c.ctx, pod, metav1.UpdateOptions{}); err != nil {
				return err.Error()
			}
			return ""
		})
		c.eventually(func() string {
			pods = c.pods()
			if len(pods) != 1 || pods[0].UID == before || !isReady(&pods[0]) {
				return fmt.Sprintf("another web-0 after it %s", phase)
			}
			return ""
		})
	}
}

func TestStatefulSetScale(t *testing.T) {
	c := start(t)
	c.statefulSet(1)
	c.running(1, "v1")
	sets := c.api.AppsV1().StatefulSets("default")
	checkScale(c, func() (*autoscalingv1.Scale, error) { return sets.GetScale(c.ctx, "web", metav1.GetOptions{}) },
		func(s *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
			return sets.UpdateScale(c.ctx, "web", s, metav1.UpdateOptions{})
		},
		func(p []byte) error {
			_, err := sets.Patch(c.ctx, "web", types.StrategicMergePatchType, p, metav1.PatchOptions{}, "scale")
			return err
		}, "v1")
}

func TestStatefulSetCollection(t *testing.T) {
	c := start(t)
	c.statefulSet(1)
	c.running(1, "v1")
	c.patchSet(object{"metadata": object{"labels": object{"patched": "yes"}}, "spec": object{"replicas": 2}})
	c.patchSet(withImage("v2"))
	c.running(2, "v2")
	sets := c.api.AppsV1().StatefulSets("")
	if list := must[*appsv1.StatefulSetList](c)(sets.List(c.ctx, metav1.ListOptions{LabelSelector: "patched=yes"})); len(list.Items) != 1 {
		t.Errorf("found %d", len(list.Items))
	}
	c.ok(c.api.AppsV1().StatefulSets("default").DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "patched=yes"}))
	if list := must[*appsv1.StatefulSetList](c)(sets.List(c.ctx, metav1.ListOptions{LabelSelector: ofWeb})); len(list.Items) != 0 {
		t.Errorf("%d are left", len(list.Items))
	}
	c.running(0, "")
}

func TestStatefulSetRollout(t *testing.T) {
	c := start(t)
	c.statefulSet(3)
	first := c.allReady(3).Status.CurrentRevision
	expect := c.record()
	c.patchSet(withImage("v2"))
	second := c.setStatus("a second revision", func(s appsv1.StatefulSetStatus) bool { return s.UpdateRevision != first }).Status.UpdateRevision
	c.running(3, "v2")
	if set := c.allReady(3); set.Status.CurrentRevision != second {
		t.Errorf("current revision %s, not %s", set.Status.CurrentRevision, second)
	}
	expect(watch.Deleted, "web-2", "web-1", "web-0")
	for _, pod := range c.pods() {
		if got := pod.Labels[appsv1.StatefulSetRevisionLabel]; got != second {
			t.Errorf("%s is of %s", pod.Name, got)
		}
	}
	c.patchSet(withImage("v1"))
	c.running(3, "v1")
	if set := c.allReady(3); set.Status.CurrentRevision != first {
		t.Errorf("rolled back to %s, not %s", set.Status.CurrentRevision, first)
	}
	if got := c.revisions(); !slices.Equal(got, []int64{2, 3}) {
		t.Errorf("revisions %v", got)
	}
}

func TestStatefulSetPartition(t *testing.T) {
	c := start(t)
	partition := func(n int) object {
		return object{"spec": object{"updateStrategy": object{"rollingUpdate": object{"partition": n}}}}
	}
	c.statefulSet(3)
	first := c.allReady(3).Status.CurrentRevision
	c.patchSet(partition(3))
	c.patchSet(withImage("v2"))
	images := func(want ...string) {
		t.Helper()
		c.eventually(func() string {
			var got []string
			for _, pod := range c.pods() {
				if isReady(&pod) {
					got = append(got, pod.Name+" "+pod.Spec.Containers[0].Image)
				}
			}
			if !slices.Equal(got, want) {
				return fmt.Sprintf("%v, not %v", want, got)
			}
			return ""
		})
	}
	second := c.setStatus("a second revision", func(s appsv1.StatefulSetStatus) bool { return s.UpdateRevision != first && s.CurrentReplicas == 3 }).Status.UpdateRevision
	images("web-0 v1", "web-1 v1", "web-2 v1")
	c.patchSet(partition(2))
	images("web-0 v1", "web-1 v1", "web-2 v2")
	// Pods that are deleted come back from the revision of their side of the partition.
	for _, name := range []string{"web-0", "web-2"} {
		c.ok(c.api.CoreV1().Pods("default").Delete(c.ctx, name, metav1.DeleteOptions{}))
	}
	c.setStatus("three ready", func(s appsv1.StatefulSetStatus) bool {
		return s.Replicas == 3 && s.ReadyReplicas == 3 && s.CurrentReplicas == 2 && s.UpdatedReplicas == 1
	})
	images("web-0 v1", "web-1 v1", "web-2 v2")
	c.patchSet(partition(1))
	images("web-0 v1", "web-1 v2", "web-2 v2")
	c.patchSet(partition(0))
	images("web-0 v2", "web-1 v2", "web-2 v2")
	if set := c.allReady(3); set.Status.CurrentRevision != second {
		t.Errorf("current revision %s, not %s", set.Status.CurrentRevision, second)
	}
}
