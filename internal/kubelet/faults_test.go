package kubelet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/kubelettest"
)

// Containers keep running when the kubelet stops, and the next one takes them over.
func TestAdopts(t *testing.T) {
	w := newFixture(t)
	w.create("web", "{containers: [{name: a, image: nginx}]}")
	before := w.await("web", ready)
	w.stop()
	if c := w.container(before.UID, "a"); c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Fatalf("the container is %v", c.State)
	}
	w.start()
	w.eventually(func() string {
		if !w.kubelet.hasWorker(before.UID) {
			return "the pod is not known"
		}
		return ""
	})
	time.Sleep(100 * time.Millisecond)
	after := w.get("web")
	if after.ResourceVersion != before.ResourceVersion || len(w.runtime.Containers(before.UID, "a")) != 1 {
		t.Errorf("the pod was written or restarted:\n%+v\n%+v", before.Status, after.Status)
	}
	w.delete("web", 30)
	w.awaitGone("web")
	w.awaitClean()
}

// A restarted kubelet handles what happened meanwhile: a container that exited, a pod that was deleted, and one whose deletion was not observed at all.
func TestCatchesUp(t *testing.T) {
	w := newFixture(t)
	ended := w.create("ended", "{containers: [{name: a, image: nginx}]}")
	w.create("deleted", "{containers: [{name: a, image: nginx}]}")
	w.create("forced", "{containers: [{name: a, image: nginx}]}")
	for _, name := range []string{"ended", "deleted", "forced"} {
		w.await(name, ready)
	}
	w.stop()
	w.runtime.Exit(w.container(ended.UID, "a").ID, 1)
	w.delete("deleted", 30)
	w.delete("forced", 0)
	w.start()
	w.awaitGone("deleted")
	w.await("ended", func(p *corev1.Pod) bool { return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1 })
	w.delete("ended", 30)
	w.awaitGone("ended")
	w.awaitClean()
}

// A pod that is force-deleted is stopped properly, though the API does not have it any more.
func TestForceDelete(t *testing.T) {
	w := newFixture(t)
	w.create("web", "{containers: [{name: a, image: nginx}]}")
	w.await("web", ready)
	w.delete("web", 0)
	w.awaitClean()
	if got := w.stopped(); len(got) != 1 {
		t.Errorf("stopped %v", got)
	}
}

// While the runtime does not answer no container counts as exited; afterwards everything works again.
func TestRuntimeAway(t *testing.T) {
	w := newFixture(t)
	pod := w.create("web", "{containers: [{name: a, image: nginx}]}")
	w.await("web", ready)
	w.runtime.SetDown(true)
	w.create("new", "{containers: [{name: a, image: nginx}]}")
	w.eventually(func() string { return w.nodeReady(false) })
	if p := w.get("web"); !ready(p) {
		t.Errorf("a pod is reported as %+v because the runtime does not answer", p.Status)
	}
	w.runtime.Exit(w.container(pod.UID, "a").ID, 1)
	w.runtime.SetDown(false)
	w.await("new", ready)
	w.await("web", func(p *corev1.Pod) bool { return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1 })
	w.eventually(func() string { return w.nodeReady(true) })
}

func (w *fixture) nodeReady(want bool) string {
	node, err := w.client.CoreV1().Nodes().Get(w.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && (c.Status == corev1.ConditionTrue) == want {
			return ""
		}
	}
	return fmt.Sprintf("the node should be ready: %v", want)
}

// When a sandbox dies, it is replaced and all containers are started again.
func TestSandboxDies(t *testing.T) {
	w := newFixture(t)
	pod := w.create("web", "{containers: [{name: a, image: nginx}]}")
	before := w.await("web", ready)
	w.runtime.KillSandbox(pod.UID)
	after := w.await("web", func(p *corev1.Pod) bool { return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1 })
	if before.Status.PodIP == after.Status.PodIP {
		t.Error("the pod kept its address in another sandbox")
	}
	w.awaitEvent("web", "Normal SandboxChanged Pod sandbox changed, it will be killed and re-created.")
	w.delete("web", 30)
	w.awaitGone("web")
	w.awaitClean()
}

// Every runtime call that fails once is retried.
func TestCallsFail(t *testing.T) {
	w := newFixture(t)
	for _, method := range []string{"RunPodSandbox", "PodSandboxStatus", "CreateContainer", "StartContainer", "ListContainers", "ContainerStatus", "StopContainer", "StopPodSandbox",
		"RemovePodSandbox"} {
		w.runtime.Fail(method, status.Error(codes.Unknown, "try again"))
	}
	w.create("web", "{terminationGracePeriodSeconds: 1, containers: [{name: a, image: nginx}]}")
	w.await("web", ready)
	w.awaitEvent("web", "Warning FailedCreatePodSandBox Failed to create pod sandbox: rpc error: code = Unknown desc = try again")
	w.awaitEvent("web", "Warning Failed Error: try again")
	w.delete("web", 1)
	w.awaitGone("web")
	w.awaitClean()
}

// A pod does not start until its volumes can be set up.
func TestVolumesFail(t *testing.T) {
	w := newFixture(t)
	w.volumes.Fail(errors.New(`MountVolume.SetUp failed for volume "v" : no`))
	pod := w.create("web", "{containers: [{name: a, image: nginx}]}")
	w.await("web", waitingFor("ContainerCreating"))
	w.eventually(func() string {
		if !w.kubelet.hasWorker(pod.UID) {
			return "no worker"
		}
		return ""
	})
	if len(w.runtime.Sandboxes(pod.UID)) > 0 {
		t.Error("a pod without volumes has a sandbox")
	}
	w.volumes.Fail(nil)
	w.await("web", ready)
}

// What is on the node and belongs to no pod of the API is stopped and removed.
func TestOrphans(t *testing.T) {
	w := newFixture(t)
	w.stop()
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "old", Namespace: "default", Uid: "orphan"},
		Labels: map[string]string{"io.kubernetes.pod.uid": "orphan", "io.kubernetes.pod.name": "old", "io.kubernetes.pod.namespace": "default"}}
	if _, err := w.runtime.RunPodSandbox(t.Context(), config, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.cgroups.Ensure(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "other"}}); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(w.dir, "kubelet", "pods", "third", "containers", "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.awaitClean()
}

// Thirty pods that come and go leave nothing behind, whatever the runtime does meanwhile.
func TestManyPods(t *testing.T) {
	w := newFixture(t)
	w.runtime.Script("flaky", kubelettest.Script{EndsItself: true, Runs: 20 * time.Millisecond, ExitCode: 1})
	for i := range 30 {
		w.create(fmt.Sprintf("web-%d", i), "{terminationGracePeriodSeconds: 1, containers: [{name: a, image: nginx}, {name: flaky, image: nginx}]}")
	}
	w.runtime.SetDown(true)
	time.Sleep(50 * time.Millisecond)
	w.runtime.SetDown(false)
	for i := range 30 {
		w.await(fmt.Sprintf("web-%d", i), func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	}
	for i := range 30 {
		w.delete(fmt.Sprintf("web-%d", i), 1)
	}
	for i := range 30 {
		w.awaitGone(fmt.Sprintf("web-%d", i))
	}
	w.awaitClean()
}
