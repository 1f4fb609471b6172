package kubelet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apiserver"
	"skiff/skifftest"
)

func (w *fixture) resize(name, patch string) {
	w.Helper()
	if _, err := w.client.CoreV1().Pods("default").Patch(w.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize"); err != nil {
		w.Fatal(err)
	}
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// A running container is resized without a restart, or with one if its resizePolicy says so; a resize that does not fit on the node is not granted.
func TestResize(t *testing.T) {
	w := newFixture(t, skifftest.WithServer(func(o *apiserver.Options) { // admission would refuse what does not fit, where the kubelet is to say so
		o.DisableAdmission = append(o.DisableAdmission, "PodResizeValidator")
	}))
	pod := w.create("web", `containers:
- {name: a, image: nginx, resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 200m, memory: 64Mi}}}
- {name: b, image: nginx, resources: {requests: {cpu: 100m}}, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}, {resourceName: memory, restartPolicy: NotRequired}]}`)
	w.await("web", ready)
	first := w.container(pod.UID, "a").ID
	w.resize("web", `{"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "150m", "memory": "96Mi"}, "limits": {"cpu": "300m", "memory": "96Mi"}}}]}}`)
	got := w.await("web", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses[0]
		return s.Resources != nil && s.Resources.Limits.Memory().String() == "96Mi" && s.AllocatedResources.Cpu().String() == "150m" && condition(p, corev1.PodResizeInProgress) == nil
	})
	if c := w.container(pod.UID, "a"); c.ID != first || got.Status.ContainerStatuses[0].RestartCount != 0 || got.Status.ContainerStatuses[0].Resources.Limits.Cpu().String() != "300m" {
		t.Errorf("the container was restarted, or has %+v", got.Status.ContainerStatuses[0])
	}
	w.awaitEvent("web", `Normal ResizeCompleted Pod resize completed: {"containers":[{"name":"a",`)

	w.resize("web", `{"spec": {"containers": [{"name": "b", "resources": {"requests": {"cpu": "120m"}}}]}}`)
	w.await("web", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[1].RestartCount == 1 && ready(p) })
	w.awaitEvent("web", "Normal Killing Container b resize requires restart")

	w.resize("web", `{"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "9999"}, "limits": {"cpu": "9999"}}}]}}`)
	got = w.await("web", func(p *corev1.Pod) bool { return condition(p, corev1.PodResizePending) != nil })
	if c := condition(got, corev1.PodResizePending); c.Reason != corev1.PodReasonInfeasible || got.Status.ContainerStatuses[0].AllocatedResources.Cpu().String() != "150m" {
		t.Errorf("condition %+v, status %+v", c, got.Status.ContainerStatuses[0])
	}
	w.awaitEvent("web", "Warning ResizeInfeasible Pod resize Infeasible: ")
	// It holds when the kubelet is restarted.
	w.stop()
	w.start()
	w.eventually(func() string {
		if !w.kubelet.hasWorker(pod.UID) {
			return "the pod is not known"
		}
		return ""
	})
	w.resize("web", `{"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "150m"}, "limits": {"cpu": "300m"}}}]}}`)
	w.await("web", func(p *corev1.Pod) bool { return condition(p, corev1.PodResizePending) == nil })
	if c := w.container(pod.UID, "a"); c.ID != first {
		t.Error("the container was restarted")
	}
}
