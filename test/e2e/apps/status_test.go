package apps

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"skiff/skifftest"
)

// checkStatus reads, updates and patches the status of an object that a controller writes too, and checks that the changes can be read. The
// controller does not interfere: it keeps conditions that are not its own.
func checkStatus(t *testing.T, resource string, make func(c cluster)) {
	t.Parallel()
	server := skifftest.Start(t, skifftest.WithControllers(), skifftest.WithScheduler(), skifftest.WithHollowNodes(2))
	c := cluster{t, server.Client(), t.Context()}
	make(c)
	group := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}
	if resource == "jobs" {
		group.Group = "batch"
	}
	client := must[*dynamic.DynamicClient](t)(dynamic.NewForConfig(server.Config()))
	objects := client.Resource(group).Namespace("default")

	conditions := func(obj *unstructured.Unstructured) (kinds []string) {
		list, _, err := unstructured.NestedSlice(obj.Object, "status", "conditions")
		c.ok(err)
		for _, cond := range list {
			kinds = append(kinds, cond.(object)["type"].(string))
		}
		return kinds
	}
	c.eventually(func() string { // the controller writes it too
		got := must[*unstructured.Unstructured](c)(objects.Get(c.ctx, "web", metav1.GetOptions{}, "status"))
		list, _, err := unstructured.NestedSlice(got.Object, "status", "conditions")
		c.ok(err)
		list = append(list, object{"type": "StatusUpdate", "status": "True", "reason": "E2E", "message": "Set from e2e test"})
		c.ok(unstructured.SetNestedSlice(got.Object, list, "status", "conditions"))
		if _, err := objects.UpdateStatus(c.ctx, got, metav1.UpdateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	if got := conditions(must[*unstructured.Unstructured](c)(objects.Get(c.ctx, "web", metav1.GetOptions{}))); !slices.Contains(got, "StatusUpdate") {
		t.Errorf("the update cannot be read: %v", got)
	}
	patched := patch(object{"metadata": object{"annotations": object{"patched": "yes"}}, "status": object{"conditions": []object{{"type": "StatusPatched", "status": "True"}}}})
	if got := must[*unstructured.Unstructured](c)(objects.Patch(c.ctx, "web", types.MergePatchType, patched, metav1.PatchOptions{}, "status")); !slices.Contains(conditions(got), "StatusPatched") {
		t.Errorf("patched: %v", conditions(got))
	}
	got := must[*unstructured.Unstructured](c)(objects.Get(c.ctx, "web", metav1.GetOptions{}))
	if !slices.Contains(conditions(got), "StatusPatched") || resource == "jobs" && got.GetAnnotations()["patched"] != "yes" {
		t.Errorf("the patch cannot be read: %v, %v", conditions(got), got.GetAnnotations())
	}
}

func TestDeploymentStatus(t *testing.T) {
	checkStatus(t, "deployments", func(c cluster) { c.deploy(1, "v1") })
}

func TestReplicaSetStatus(t *testing.T) {
	checkStatus(t, "replicasets", func(c cluster) { c.replicaSet(1) })
}

func TestDaemonSetStatus(t *testing.T) {
	checkStatus(t, "daemonsets", func(c cluster) { c.daemonSet("v1") })
}

func TestStatefulSetStatus(t *testing.T) {
	checkStatus(t, "statefulsets", func(c cluster) { c.statefulSet(1) })
}

func TestJobStatus(t *testing.T) {
	checkStatus(t, "jobs", func(c cluster) {
		c.job(sized(2, 4))
	})
}
