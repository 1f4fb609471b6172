package apps

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"skiff/skifftest"
)

// testTimeout bounds every wait. Usually waits take a hundredth of it; test machines can be slow.
const testTimeout = 30 * time.Second

// The annotations that control the pods of a hollow node; see internal/hollow.
const (
	runsFor  = "hollow.skiff/runs-for"
	exitCode = "hollow.skiff/exit-code"
	neverUp  = "hollow.skiff/ready-after"
)

// cluster is a cluster of two hollow nodes.
type cluster struct {
	*testing.T
	api kubernetes.Interface
	ctx context.Context
}

func start(t *testing.T) cluster {
	t.Helper()
	t.Parallel()
	server := skifftest.Start(t, skifftest.WithControllers(), skifftest.WithScheduler(), skifftest.WithHollowNodes(2))
	return cluster{t, server.Client(), t.Context()}
}

// web returns the labels of the tests' pods.
func web() map[string]string { return map[string]string{"app": "web"} }

func selectWeb() *metav1.LabelSelector { return &metav1.LabelSelector{MatchLabels: web()} }

const ofWeb = "app=web"

// template returns a pod template with an image. annotations are key-value pairs that control its containers.
func template(image string, annotations ...string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: web(), Annotations: map[string]string{}},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(1)), Containers: []corev1.Container{{Name: "c", Image: image}}}}
	for pair := range slices.Chunk(annotations, 2) {
		t.Annotations[pair[0]] = pair[1]
	}
	return t
}

// must returns a function that passes a result through and fails the test on an error.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (c cluster) ok(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// eventually waits until holds returns an empty string; otherwise the test fails with the last one.
func (c cluster) eventually(holds func() (missing string)) {
	c.Helper()
	var missing string
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(3 * time.Millisecond) {
		if missing = holds(); missing == "" {
			return
		}
	}
	c.Fatalf("not within %v: %s", testTimeout, missing)
}

func (c cluster) pods() []corev1.Pod {
	c.Helper()
	list, err := c.api.CoreV1().Pods("default").List(c.ctx, metav1.ListOptions{LabelSelector: ofWeb})
	c.ok(err)
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// running waits until there are exactly n pods, all ready, with the image and not terminating.
func (c cluster) running(want int, image string) []corev1.Pod {
	c.Helper()
	var pods []corev1.Pod
	c.eventually(func() string {
		pods = c.pods()
		var seen []string
		good := 0
		for _, p := range pods {
			seen = append(seen, fmt.Sprintf("%s %s %s", p.Name, p.Status.Phase, p.Spec.Containers[0].Image))
			if isReady(&p) && p.Spec.Containers[0].Image == image {
				good++
			}
		}
		if good != want || len(pods) != want {
			return fmt.Sprintf("%d pods of %s that are ready; there are %q", want, image, seen)
		}
		return ""
	})
	return pods
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

func names(pods []corev1.Pod) (out []string) {
	for _, p := range pods {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return out
}

// patch returns the JSON of a patch.
func patch(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

type object = map[string]any

// ownedBy reports whether a pod's controller has a uid.
func ownedBy(p *corev1.Pod, uid types.UID) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && owner.UID == uid
}

// relabel changes the label of a pod, so that web's selector no longer matches it.
func (c cluster) relabel(pod string) {
	c.Helper()
	_, err := c.api.CoreV1().Pods("default").Patch(c.ctx, pod, types.MergePatchType, patch(object{"metadata": object{"labels": object{"app": "other"}}}), metav1.PatchOptions{})
	c.ok(err)
}

// released waits until a pod has no controller.
func (c cluster) released(pod string) {
	c.Helper()
	c.eventually(func() string {
		p := must[*corev1.Pod](c)(c.api.CoreV1().Pods("default").Get(c.ctx, pod, metav1.GetOptions{}))
		if metav1.GetControllerOf(p) != nil {
			return pod + " released"
		}
		return ""
	})
}

// stray creates a pod without a controller, with web's labels, and waits until it runs: so a controller observes it before it creates another
// pod, and of two pods keeps this one.
func (c cluster) stray(name string) {
	c.Helper()
	t := template("old")
	t.Name = name
	pods := c.api.CoreV1().Pods("default")
	must[*corev1.Pod](c)(pods.Create(c.ctx, &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}, metav1.CreateOptions{}))
	c.running(1, "old")
}

// adopted waits until a pod has a controller with a uid.
func (c cluster) adopted(pod string, by types.UID) {
	c.Helper()
	c.eventually(func() string {
		p := must[*corev1.Pod](c)(c.api.CoreV1().Pods("default").Get(c.ctx, pod, metav1.GetOptions{}))
		if !ownedBy(p, by) {
			return fmt.Sprintf("%s adopted, not owned by %v", pod, p.OwnerReferences)
		}
		return ""
	})
}

// replicaSets returns the ReplicaSets of web, by image.
func (c cluster) replicaSets() map[string]appsv1.ReplicaSet {
	c.Helper()
	list, err := c.api.AppsV1().ReplicaSets("default").List(c.ctx, metav1.ListOptions{LabelSelector: ofWeb})
	c.ok(err)
	out := map[string]appsv1.ReplicaSet{}
	for _, rs := range list.Items {
		out[rs.Spec.Template.Spec.Containers[0].Image] = rs
	}
	return out
}

// describe returns ReplicaSets as text for error messages.
func describe(sets map[string]appsv1.ReplicaSet) string {
	var out []string
	for image, rs := range sets {
		out = append(out, fmt.Sprintf("%s: %d", image, *rs.Spec.Replicas))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
