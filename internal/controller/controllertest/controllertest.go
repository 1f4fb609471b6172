package controllertest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/client"
	"skiff/internal/controller"
)

// timeout is how long conditions may take to hold. They take a hundredth of that; test machines can be slow.
const timeout = 30 * time.Second

// Run runs loops until the test ends or stop is called. stop returns when all their work has ended.
func Run(t testing.TB, server *apitest.Server, constructors ...func(controller.Deps) controller.Loop) (stop func()) {
	t.Helper()
	return RunAt(t, server, time.Now, constructors...)
}

// RunAt is Run with a clock.
func RunAt(t testing.TB, server *apitest.Server, now func() time.Time, constructors ...func(controller.Deps) controller.Loop) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := server.InProcess("kube-controller-manager", "system:kube-controller-manager")
	deps := controller.Deps{Informers: c.Informers(client.InformerOptions{}), Client: c, Log: slog.New(slog.DiscardHandler)}
	var loops []controller.Loop
	for _, new := range constructors {
		loops = append(loops, new(deps))
	}
	m, err := controller.New(controller.Options{Informers: deps.Informers, Loops: loops, Log: deps.Log, Now: now, Client: func(account string) (*client.Client, error) {
		return server.InProcess(account, "system:serviceaccount:kube-system:"+account, "system:serviceaccounts", "system:serviceaccounts:kube-system"), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// Eventually waits until a condition holds; holds returns what is missing, or "".
func Eventually(t testing.TB, holds func() (missing string)) {
	t.Helper()
	var missing string
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if missing = holds(); missing == "" {
			return
		}
	}
	t.Fatalf("not within %v: %s", timeout, missing)
}

// Bind binds a pod to a node, as a scheduler would.
func Bind(t testing.TB, server *apitest.Server, pod *corev1.Pod, node string) {
	t.Helper()
	err := server.Client().CoreV1().Pods(pod.Namespace).Bind(t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
		Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// ReportPhase updates a pod's status with a phase, as its kubelet would. A Running pod is ready and has the IP.
func ReportPhase(t testing.TB, server *apitest.Server, pod *corev1.Pod, phase corev1.PodPhase, ip string) {
	t.Helper()
	pod = pod.DeepCopy()
	pod.Status.Phase = phase
	ready := corev1.ConditionFalse
	if phase == corev1.PodRunning {
		ready = corev1.ConditionTrue
		pod.Status.PodIP, pod.Status.PodIPs = ip, nil
		if ip != "" {
			pod.Status.PodIPs = []corev1.PodIP{{IP: ip}}
		}
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}}
	if _, err := server.Client().CoreV1().Pods(pod.Namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
