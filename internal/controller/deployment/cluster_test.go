package deployment_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/deployment"
	"skiff/internal/controller/replicaset"
)

// cluster is a server with the loops that run Deployments.
type cluster struct {
	*testing.T
	server *apitest.Server
}

func start(t *testing.T) cluster {
	t.Helper()
	c := cluster{t, apitest.Start(t)}
	controllertest.Run(t, c.server, deployment.New, replicaset.New)
	return c
}

// create creates a Deployment called web of so many pods.
func (c cluster) create(replicas int32, changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	c.Helper()
	app := map[string]string{"app": "web"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: app},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}}}}}
	for _, change := range changes {
		change(d)
	}
	d, err := c.server.Client().AppsV1().Deployments("default").Create(c.Context(), d, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return d
}

func (c cluster) patch(format string, args ...any) {
	c.Helper()
	_, err := c.server.Client().AppsV1().Deployments("default").Patch(c.Context(), "web", types.StrategicMergePatchType, fmt.Appendf(nil, format, args...), metav1.PatchOptions{})
	if err != nil {
		c.Fatal(err)
	}
}

func (c cluster) setImage(image string) {
	c.Helper()
	c.patch(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image)
}

func (c cluster) get() *appsv1.Deployment {
	c.Helper()
	d, err := c.server.Client().AppsV1().Deployments("default").Get(c.Context(), "web", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return d
}

func (c cluster) sets() []appsv1.ReplicaSet {
	c.Helper()
	list, err := c.server.Client().AppsV1().ReplicaSets("default").List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return list.Items
}

// sizes returns the ReplicaSets' sizes by image.
func (c cluster) sizes() map[string]int32 {
	c.Helper()
	sizes := map[string]int32{}
	for _, rs := range c.sets() {
		sizes[rs.Spec.Template.Spec.Containers[0].Image] = *rs.Spec.Replicas
	}
	return sizes
}

func (c cluster) pods() []corev1.Pod {
	c.Helper()
	list, err := c.server.Client().CoreV1().Pods("default").List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return list.Items
}

const isReady = `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`

// bringUp makes pods ready that match and are not.
func (c cluster) bringUp(which func(*corev1.Pod) bool) {
	c.Helper()
	if err := c.tryBringUp(c.Context(), which); err != nil {
		c.Fatal(err)
	}
}

func (c cluster) tryBringUp(ctx context.Context, which func(*corev1.Pod) bool) error {
	client := c.server.Client().CoreV1().Pods("default")
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pod := range list.Items {
		if pod.Status.Phase == corev1.PodRunning || !which(&pod) {
			continue
		}
		_, err := client.Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(isReady), metav1.PatchOptions{}, "status")
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func all(*corev1.Pod) bool { return true }

func image(images ...string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return slices.Contains(images, p.Spec.Containers[0].Image) }
}

// condition describes a condition in a line.
func condition(d *appsv1.Deployment, kind appsv1.DeploymentConditionType) string {
	for _, cond := range d.Status.Conditions {
		if cond.Type == kind {
			return fmt.Sprintf("%s %s: %s", cond.Status, cond.Reason, cond.Message)
		}
	}
	return ""
}

// rolledOut makes pods ready until the rollout is complete.
func (c cluster) rolledOut(which func(*corev1.Pod) bool) *appsv1.Deployment {
	c.Helper()
	var d *appsv1.Deployment
	controllertest.Eventually(c, func() string {
		c.bringUp(which)
		d = c.get()
		n, s := *d.Spec.Replicas, d.Status
		if s.ObservedGeneration >= d.Generation && s.Replicas == n && s.UpdatedReplicas == n && s.AvailableReplicas == n &&
			strings.Contains(condition(d, appsv1.DeploymentProgressing), "NewReplicaSetAvailable") {
			return ""
		}
		return fmt.Sprintf("generation %d, %d replicas, status %+v", d.Generation, n, s)
	})
	return d
}

// eventually waits until the ReplicaSets have these sizes.
func (c cluster) eventually(want map[string]int32) {
	c.Helper()
	controllertest.Eventually(c, func() string {
		if got := c.sizes(); !maps.Equal(got, want) {
			return fmt.Sprintf("the sizes are %v, not %v", got, want)
		}
		return ""
	})
}

// events returns the Events about the Deployment.
func (c cluster) events() []string {
	c.Helper()
	list, err := c.server.Client().CoreV1().Events("default").List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	var out []string
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "Deployment" {
			out = append(out, fmt.Sprintf("%s %s %s", e.Source.Component, e.Reason, e.Message))
		}
	}
	return out
}
