package apps

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// daemonSet creates a DaemonSet.
func (c cluster) daemonSet(image string, changes ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	c.Helper()
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: web()}, Spec: appsv1.DaemonSetSpec{Selector: selectWeb(), Template: template(image)}}
	for _, change := range changes {
		change(ds)
	}
	return must[*appsv1.DaemonSet](c)(c.api.AppsV1().DaemonSets("default").Create(c.ctx, ds, metav1.CreateOptions{}))
}

// onNodes waits until exactly these nodes have a ready pod each, and the status has their number.
func (c cluster) onNodes(image string, want ...string) []corev1.Pod {
	c.Helper()
	pods := c.running(len(want), image)
	var got []string
	for _, p := range pods {
		got = append(got, p.Spec.NodeName)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		c.Fatalf("pods on %v, want %v", got, want)
	}
	c.eventually(func() string {
		ds := must[*appsv1.DaemonSet](c)(c.api.AppsV1().DaemonSets("default").Get(c.ctx, "web", metav1.GetOptions{}))
		if n := int32(len(want)); ds.Status.DesiredNumberScheduled != n || ds.Status.CurrentNumberScheduled != n || ds.Status.NumberReady != n {
			return fmt.Sprintf("the status of %d: %+v", n, ds.Status)
		}
		return ""
	})
	return pods
}

var both = []string{"hollow-0", "hollow-1"}

func TestSimpleDaemon(t *testing.T) {
	c := start(t)
	c.daemonSet("v1")
	pods := c.onNodes("v1", both...)
	c.ok(c.api.CoreV1().Pods("default").Delete(c.ctx, pods[0].Name, metav1.DeleteOptions{}))
	c.eventually(func() string {
		if slices.Contains(names(c.pods()), pods[0].Name) {
			return "the pod to go"
		}
		return ""
	})
	c.onNodes("v1", both...)
}

func TestComplexDaemon(t *testing.T) {
	c := start(t)
	color := func(node, color string) {
		t.Helper()
		_, err := c.api.CoreV1().Nodes().Patch(c.ctx, node, types.MergePatchType, patch(object{"metadata": object{"labels": object{"color": color}}}), metav1.PatchOptions{})
		c.ok(err)
	}
	c.daemonSet("v1", func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.NodeSelector = map[string]string{"color": "blue"} })
	c.onNodes("v1")
	color("hollow-1", "blue")
	c.onNodes("v1", "hollow-1")
	color("hollow-1", "green")
	c.onNodes("v1")
	p := patch(object{"spec": object{"updateStrategy": object{"type": "RollingUpdate"}, "template": object{"spec": object{"nodeSelector": object{"color": "green"}}}}})
	_, err := c.api.AppsV1().DaemonSets("default").Patch(c.ctx, "web", types.StrategicMergePatchType, p, metav1.PatchOptions{})
	c.ok(err)
	c.onNodes("v1", "hollow-1")
}

func TestFailedDaemonPods(t *testing.T) {
	c := start(t)
	c.daemonSet("v1")
	pods := c.onNodes("v1", both...)
	failed := pods[0]
	failed.ResourceVersion, failed.Status.Phase = "", corev1.PodFailed
	_, err := c.api.CoreV1().Pods("default").UpdateStatus(c.ctx, &failed, metav1.UpdateOptions{})
	c.ok(err)
	c.eventually(func() string {
		if slices.Contains(names(c.pods()), failed.Name) {
			return "the failed pod to go"
		}
		return ""
	})
	c.onNodes("v1", both...)
}

// setDaemonImage changes the image of the DaemonSet.
func (c cluster) setDaemonImage(image string, annotations object) {
	c.Helper()
	p := patch(object{"spec": object{"template": object{"metadata": object{"annotations": annotations}, "spec": object{"containers": []object{{"name": "c", "image": image}}}}}})
	_, err := c.api.AppsV1().DaemonSets("default").Patch(c.ctx, "web", types.StrategicMergePatchType, p, metav1.PatchOptions{})
	c.ok(err)
}

// revisions returns the numbers of the DaemonSet's ControllerRevisions.
func (c cluster) revisions() (numbers []int64) {
	c.Helper()
	list := must[*appsv1.ControllerRevisionList](c)(c.api.AppsV1().ControllerRevisions("").List(c.ctx, metav1.ListOptions{LabelSelector: ofWeb}))
	for _, r := range list.Items {
		numbers = append(numbers, r.Revision)
	}
	slices.Sort(numbers)
	return numbers
}

func TestDaemonRollingUpdate(t *testing.T) {
	c := start(t)
	c.daemonSet("v1")
	before := c.onNodes("v1", both...)
	c.eventuallyRevisions(1)
	c.setDaemonImage("v2", nil)
	after := c.onNodes("v2", both...)
	c.eventuallyRevisions(1, 2)
	if slices.ContainsFunc(names(after), func(name string) bool { return slices.Contains(names(before), name) }) {
		t.Errorf("pods were kept: %v", names(after))
	}
	list := must[*appsv1.ControllerRevisionList](c)(c.api.AppsV1().ControllerRevisions("default").List(c.ctx, metav1.ListOptions{LabelSelector: ofWeb}))
	for _, r := range list.Items {
		if r.Revision == 2 && r.Labels[appsv1.ControllerRevisionHashLabelKey] != after[0].Labels[appsv1.ControllerRevisionHashLabelKey] {
			t.Errorf("revision 2 is %v, the pods are of %v", r.Labels, after[0].Labels)
		}
	}
}

func (c cluster) eventuallyRevisions(want ...int64) {
	c.Helper()
	c.eventually(func() string {
		if got := c.revisions(); !slices.Equal(got, want) {
			return fmt.Sprintf("revisions %v, there are %v", want, got)
		}
		return ""
	})
}

func TestDaemonRollback(t *testing.T) {
	c := start(t)
	c.daemonSet("v1")
	before := names(c.onNodes("v1", both...))
	c.setDaemonImage("broken", object{neverUp: "1h"})
	var kept string
	c.eventually(func() string {
		pods := c.pods()
		i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Spec.Containers[0].Image == "broken" })
		j := slices.IndexFunc(pods, func(p corev1.Pod) bool { return slices.Contains(before, p.Name) })
		if i < 0 || j < 0 || len(pods) != 2 {
			return fmt.Sprintf("one pod replaced: %v", names(pods))
		}
		kept = pods[j].Name
		return ""
	})
	c.setDaemonImage("v1", object{neverUp: nil})
	if after := names(c.onNodes("v1", both...)); !slices.Contains(after, kept) {
		t.Errorf("%s was of the right template all along, but was replaced: %v", kept, after)
	}
}

func TestDaemonSetCollection(t *testing.T) {
	c := start(t)
	c.daemonSet("v1")
	c.onNodes("v1", both...)
	if list := must[*appsv1.DaemonSetList](c)(c.api.AppsV1().DaemonSets("").List(c.ctx, metav1.ListOptions{LabelSelector: ofWeb})); len(list.Items) != 1 {
		t.Errorf("found %d", len(list.Items))
	}
	c.ok(c.api.AppsV1().DaemonSets("default").DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: ofWeb}))
	if list := must[*appsv1.DaemonSetList](c)(c.api.AppsV1().DaemonSets("").List(c.ctx, metav1.ListOptions{LabelSelector: ofWeb})); len(list.Items) != 0 {
		t.Errorf("%d are left", len(list.Items))
	}
	c.running(0, "")
}

func TestControllerRevisions(t *testing.T) {
	c := start(t)
	ds := c.daemonSet("v1")
	c.onNodes("v1", both...)
	revisions := c.api.AppsV1().ControllerRevisions("default")
	list := must[*appsv1.ControllerRevisionList](c)(c.api.AppsV1().ControllerRevisions("").List(c.ctx, metav1.ListOptions{LabelSelector: ofWeb}))
	if len(list.Items) != 1 || !metav1.IsControlledBy(&list.Items[0], ds) {
		t.Fatalf("%v", list.Items)
	}
	first := list.Items[0]
	got := must[*appsv1.ControllerRevision](c)(revisions.Patch(c.ctx, first.Name, types.StrategicMergePatchType, patch(object{"metadata": object{"labels": object{first.Name: "patched"}}}), metav1.PatchOptions{}))
	if got.Labels[first.Name] != "patched" || got.ResourceVersion == first.ResourceVersion {
		t.Errorf("patched: %v", got.ObjectMeta)
	}
	// Somebody makes another, and removes the first.
	second := first.DeepCopy()
	second.ObjectMeta = metav1.ObjectMeta{Name: "web-another", Labels: map[string]string{"app": "web", appsv1.DefaultDaemonSetUniqueLabelKey: "another"}, OwnerReferences: first.OwnerReferences}
	second.Revision = first.Revision + 1
	_, err := revisions.Create(c.ctx, second, metav1.CreateOptions{})
	c.ok(err)
	if got := c.revisions(); !slices.Contains(got, 2) {
		t.Errorf("the second is not there: %v", got)
	}
	// If something has the loop look just now, it tidies up by itself: both are of the same template.
	if err := revisions.Delete(c.ctx, first.Name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		c.ok(err)
	}
	c.eventuallyRevisions(2)
	c.eventually(func() string {
		r := must[*appsv1.ControllerRevision](c)(revisions.Get(c.ctx, "web-another", metav1.GetOptions{}))
		r.Labels["updated"] = "yes"
		if _, err := revisions.Update(c.ctx, r, metav1.UpdateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	c.setDaemonImage("v2", nil)
	c.eventuallyRevisions(2, 3)
	c.ok(revisions.DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "updated=yes"}))
	c.eventuallyRevisions(3)
}
