package initializers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"skiff/skifftest"
	"skiff/test/initializers"
)

// TestUses: what the guide wants from initializers works in each way, on a server with the scheduler, the control loops and imaginary nodes.
func TestUses(t *testing.T) {
	s := skifftest.Start(t, skifftest.WithControllers(), skifftest.WithScheduler(), skifftest.WithHollowNodes(2))
	cluster := &initializers.Cluster{Config: s.Config(), Image: "busybox", Command: []string{"sleep", "1000"}, Running: func(t *testing.T, namespace, name string) {
		await(t, "pod "+name+" to run", func() bool {
			pod, err := s.Client().CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
			return err == nil && pod.Status.Phase == corev1.PodRunning
		})
	}}
	t.Run("initializers", func(t *testing.T) {
		way := &initializers.Initializers{}
		cluster.Show(t, "initializers", way)
		deployment(t, s.Client(), "initializers")
	})
	for _, failure := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
		name := "webhooks-" + strings.ToLower(string(failure))
		t.Run(name, func(t *testing.T) {
			way := &initializers.Webhooks{Failure: failure}
			cluster.Show(t, name, way)
			way.Stop()
			pods := s.Client().CoreV1().Pods(name)
			pod, err := pods.Create(t.Context(), cluster.Pod("unserved", 80), metav1.CreateOptions{})
			switch failure {
			case admissionregistrationv1.Fail:
				if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "failed calling webhook") {
					t.Errorf("without the webhooks: %v", err)
				}
			default:
				if err != nil || len(pod.Spec.Containers) != 1 {
					t.Errorf("without the webhooks: %v", err)
				}
			}
		})
	}
	t.Run("policies", func(t *testing.T) { cluster.Show(t, "policies", initializers.Policies{}) })
}

// deployment checks that the pods of a Deployment are initialized, each once.
func deployment(t *testing.T, api kubernetes.Interface, namespace string) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	_, err := api.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)),
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the Deployment to be available", func() bool {
		d, err := api.AppsV1().Deployments(namespace).Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && d.Status.AvailableReplicas == 3
	})
	pods, err := api.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(pods.Items) != 3 {
		t.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	for _, p := range pods.Items {
		if len(p.Spec.Containers) != 2 {
			t.Errorf("%s has %d containers", p.Name, len(p.Spec.Containers))
		}
	}
}

// TestNobodyInitializes: while the initializer is away, nothing that controllers make is seen, nor made twice, through kill -9 of the server too; and the
// namespace can be deleted all the same.
func TestNobodyInitializes(t *testing.T) {
	s := skifftest.Start(t, skifftest.WithControllers(), skifftest.WithScheduler(), skifftest.WithHollowNodes(1))
	cluster := &initializers.Cluster{Config: s.Config(), Image: "busybox"}
	way := &initializers.Initializers{}
	api := s.Client()
	for _, name := range []string{"kept", "deleted"} {
		if _, err := api.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		await(t, "the service account", func() bool {
			_, err := api.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
			return err == nil
		})
	}
	way.Configure(t, cluster, initializers.PodConfiguration)
	create := func(namespace string, timeout time.Duration) error {
		return api.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Body(cluster.Pod("alone", 80)).Timeout(timeout).Do(t.Context()).Error()
	}
	await(t, "the configuration to take effect", func() bool {
		if err := create("kept", time.Second); err == nil {
			return api.CoreV1().Pods("kept").Delete(t.Context(), "alone", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}) != nil
		}
		return true
	})
	if err := create("deleted", time.Second); !apierrors.IsTimeout(err) || !strings.Contains(err.Error(), "server has timed out waiting for the initialization of pods alone") {
		t.Errorf("nobody initializes: %v", err)
	}
	labels := map[string]string{"app": "web"}
	_, err := api.AppsV1().ReplicaSets("kept").Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(1)),
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waiting := func(namespace string) int {
		t.Helper()
		raw, err := s.Client().CoreV1().RESTClient().Get().Resource("pods").Namespace(namespace).Param("includeUninitialized", "true").Do(t.Context()).Get()
		if err != nil {
			t.Fatal(err)
		}
		return len(raw.(*corev1.PodList).Items)
	}
	await(t, "the pod of the ReplicaSet", func() bool { return waiting("kept") == 2 })
	s.Kill()
	s.Restart()
	cluster.Config, api = s.Config(), s.Client()
	if got := waiting("kept"); got < 2 { // the ReplicaSet's loop, which was killed too, may make another pod
		t.Errorf("%d pods wait after the restart", got)
	}
	if pods, err := api.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err != nil || len(pods.Items) != 0 {
		t.Errorf("%d pods are seen, %v", len(pods.Items), err)
	}
	if err := api.CoreV1().Namespaces().Delete(t.Context(), "deleted", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the namespace to be deleted", func() bool {
		_, err := api.CoreV1().Namespaces().Get(t.Context(), "deleted", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if got := waiting("deleted"); got != 0 {
		t.Errorf("%d pods are left of the namespace", got)
	}
	way.Run(t, cluster)
	await(t, "the pods to run", func() bool {
		pods, err := api.CoreV1().Pods("kept").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		running := 0
		for _, p := range pods.Items {
			if p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		return running == 2 && len(pods.Items) == 2
	})
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
