package apps

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
)

func newDeployment(replicas int32, image string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: web()},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selectWeb(), Template: template(image)}}
}

// deploy creates a Deployment.
func (c cluster) deploy(replicas int32, image string, changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	c.Helper()
	d := newDeployment(replicas, image)
	for _, change := range changes {
		change(d)
	}
	return must[*appsv1.Deployment](c)(c.api.AppsV1().Deployments("default").Create(c.ctx, d, metav1.CreateOptions{}))
}

// image changes the image of the Deployment.
func (c cluster) image(image string, annotations object) {
	c.Helper()
	p := patch(object{"spec": object{"template": object{"metadata": object{"annotations": annotations}, "spec": object{"containers": []object{{"name": "c", "image": image}}}}}})
	_, err := c.api.AppsV1().Deployments("default").Patch(c.ctx, "web", types.StrategicMergePatchType, p, metav1.PatchOptions{})
	c.ok(err)
}

// complete waits until the Deployment's rollout is complete.
func (c cluster) complete() *appsv1.Deployment {
	c.Helper()
	var d *appsv1.Deployment
	c.eventually(func() string {
		d = must[*appsv1.Deployment](c)(c.api.AppsV1().Deployments("default").Get(c.ctx, "web", metav1.GetOptions{}))
		s := d.Status
		if s.ObservedGeneration < d.Generation || s.Replicas != *d.Spec.Replicas || s.UpdatedReplicas != s.Replicas || s.AvailableReplicas != s.Replicas {
			return fmt.Sprintf("a complete rollout: %+v", s)
		}
		return ""
	})
	return d
}

func TestRollingUpdate(t *testing.T) {
	c := start(t)
	// A ReplicaSet that was there before is taken over and replaced.
	before := c.replicaSet(1)
	pods := c.running(1, "old")
	c.deploy(1, "v1")
	c.running(1, "v1")
	c.complete()
	sets := c.replicaSets()
	if len(sets) != 2 || sets["old"].UID != before.UID || *sets["old"].Spec.Replicas != 0 || *sets["v1"].Spec.Replicas != 1 {
		t.Errorf("there are %s", describe(sets))
	}
	if owner := metav1.GetControllerOf(new(sets["old"])); owner == nil || owner.Kind != "Deployment" {
		t.Errorf("the old ReplicaSet is not the Deployment's: %v", owner)
	}
	if left := c.pods(); slices.ContainsFunc(left, func(p corev1.Pod) bool { return p.Name == pods[0].Name }) {
		t.Errorf("the old pod is still there: %v", names(left))
	}
}

func TestRecreate(t *testing.T) {
	c := start(t)
	c.deploy(3, "v1", func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	})
	c.running(3, "v1")
	c.complete()
	w := must[watch.Interface](c)(c.api.CoreV1().Pods("default").Watch(c.ctx, metav1.ListOptions{LabelSelector: ofWeb}))
	defer w.Stop()
	c.image("v2", nil)
	c.running(3, "v2")
	// At no time pods of both are there.
	there, became := map[string]string{}, 0
	for became < 3 {
		e := <-w.ResultChan()
		pod := e.Object.(*corev1.Pod)
		image := pod.Spec.Containers[0].Image
		if e.Type == watch.Deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			delete(there, pod.Name)
			continue
		}
		if e.Type == watch.Added && image == "v2" {
			became++
		}
		there[pod.Name] = image
		if images := slices.Compact(slices.Sorted(maps.Values(there))); len(images) > 1 {
			t.Fatalf("pods of %v beside each other: %v", images, there)
		}
	}
}

func TestOldReplicaSetsGo(t *testing.T) {
	c := start(t)
	c.deploy(1, "v1", func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = new(int32(0)) })
	c.complete()
	c.image("v2", nil)
	c.running(1, "v2")
	c.eventually(func() string {
		if sets := c.replicaSets(); len(sets) != 1 {
			return "one ReplicaSet: " + describe(sets)
		}
		return ""
	})
}

func TestRollover(t *testing.T) {
	c := start(t)
	c.deploy(2, "v1", func(d *appsv1.Deployment) {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromInt32(1))}
	})
	c.complete()
	c.image("broken", object{neverUp: "1h"})
	c.eventually(func() string {
		if sets := c.replicaSets(); len(sets) != 2 || *sets["broken"].Spec.Replicas != 1 {
			return "a rollout that does not come about: " + describe(sets)
		}
		return ""
	})
	// Before it is done, there is something else to be rolled out.
	c.image("v3", object{neverUp: nil})
	c.running(2, "v3")
	c.complete()
	c.eventually(func() string {
		sets := c.replicaSets()
		if *sets["v1"].Spec.Replicas != 0 || *sets["broken"].Spec.Replicas != 0 || *sets["v3"].Spec.Replicas != 2 {
			return "old ones scaled down: " + describe(sets)
		}
		return ""
	})
}

func TestProportionalScaling(t *testing.T) {
	c := start(t)
	c.deploy(10, "v1", func(d *appsv1.Deployment) {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.FromInt32(2)), MaxSurge: new(intstr.FromInt32(3))}
	})
	c.complete()
	c.image("broken", object{neverUp: "1h"})
	scaled := func(first, second int32) {
		t.Helper()
		c.eventually(func() string {
			sets := c.replicaSets()
			if len(sets) != 2 || *sets["v1"].Spec.Replicas != first || *sets["broken"].Spec.Replicas != second {
				return fmt.Sprintf("%d and %d replicas: %s", first, second, describe(sets))
			}
			return ""
		})
	}
	scaled(8, 5) // 10 - 2, and up to 10 + 3
	_, err := c.api.AppsV1().Deployments("default").Patch(c.ctx, "web", types.MergePatchType, patch(object{"spec": object{"replicas": 30}}), metav1.PatchOptions{})
	c.ok(err)
	scaled(20, 13) // as 8 to 5, up to 30 + 3
}

func TestDeploymentScale(t *testing.T) {
	c := start(t)
	c.deploy(1, "v1")
	c.running(1, "v1")
	d := c.api.AppsV1().Deployments("default")
	checkScale(c, func() (*autoscalingv1.Scale, error) { return d.GetScale(c.ctx, "web", metav1.GetOptions{}) },
		func(s *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
			return d.UpdateScale(c.ctx, "web", s, metav1.UpdateOptions{})
		},
		func(p []byte) error {
			_, err := d.Patch(c.ctx, "web", types.StrategicMergePatchType, p, metav1.PatchOptions{}, "scale")
			return err
		}, "v1")
}

// checkScale reads, updates and patches the scale of a workload with one pod.
func checkScale(c cluster, get func() (*autoscalingv1.Scale, error), update func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error), patchWith func([]byte) error, image string) {
	c.Helper()
	scale := must[*autoscalingv1.Scale](c)(get())
	if scale.Spec.Replicas != 1 || scale.Status.Selector != ofWeb {
		c.Errorf("%+v", scale)
	}
	scale.ResourceVersion, scale.Spec.Replicas = "", 2
	if got := must[*autoscalingv1.Scale](c)(update(scale)); got.Spec.Replicas != 2 {
		c.Errorf("updated: %+v", got)
	}
	c.running(2, image)
	c.ok(patchWith(patch(object{"spec": object{"replicas": 4}})))
	if scale := must[*autoscalingv1.Scale](c)(get()); scale.Spec.Replicas != 4 {
		c.Errorf("patched: %+v", scale)
	}
	c.running(4, image)
}

func TestDeploymentLifecycle(t *testing.T) {
	c := start(t)
	all, own := c.api.AppsV1().Deployments(""), c.api.AppsV1().Deployments("default")
	w := must[watch.Interface](c)(own.Watch(c.ctx, metav1.ListOptions{LabelSelector: ofWeb}))
	defer w.Stop()
	c.deploy(2, "v1")
	c.running(2, "v1")
	c.complete()
	// Patched, with another image and size.
	p := patch(object{"metadata": object{"labels": object{"patched": "yes"}}, "spec": object{"replicas": 1, "template": object{"spec": object{"containers": []object{{"name": "c", "image": "v2"}}}}}})
	_, err := own.Patch(c.ctx, "web", types.StrategicMergePatchType, p, metav1.PatchOptions{})
	c.ok(err)
	c.running(1, "v2")
	if list := must[*appsv1.DeploymentList](c)(all.List(c.ctx, metav1.ListOptions{LabelSelector: "patched=yes"})); len(list.Items) != 1 || list.Items[0].Spec.Template.Spec.Containers[0].Image != "v2" {
		t.Errorf("found %v", list.Items)
	}
	// Replaced.
	c.eventually(func() string {
		d := must[*appsv1.Deployment](c)(own.Get(c.ctx, "web", metav1.GetOptions{}))
		d.Spec.Replicas = new(int32(3))
		if _, err := own.Update(c.ctx, d, metav1.UpdateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	c.running(3, "v2")
	c.complete()
	_, err = own.Patch(c.ctx, "web", types.MergePatchType, patch(object{"status": object{"readyReplicas": 0, "availableReplicas": 0}}), metav1.PatchOptions{}, "status")
	c.ok(err)
	c.complete() // the controller writes the status again
	c.ok(own.DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "patched=yes"}))
	for e := range w.ResultChan() {
		if e.Type == watch.Deleted {
			break
		}
	}
	if _, err := own.Get(c.ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
	c.running(0, "")
}
