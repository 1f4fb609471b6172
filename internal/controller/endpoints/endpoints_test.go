package endpoints_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/endpoints"
)

// expect waits until a Service's Endpoints have these addresses, ready and not.
func expect(t *testing.T, server *apitest.Server, name string, ready, notReady int) {
	t.Helper()
	controllertest.Eventually(t, func() string {
		e, err := server.Client().CoreV1().Endpoints("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		r, n := 0, 0
		for _, s := range e.Subsets {
			r, n = r+len(s.Addresses), n+len(s.NotReadyAddresses)
		}
		if r != ready || n != notReady {
			return fmt.Sprintf("%d ready and %d not, instead of %d and %d", r, n, ready, notReady)
		}
		return ""
	})
}

func TestService(t *testing.T) {
	server := apitest.Start(t)
	c, ctx := server.Client().CoreV1(), t.Context()
	stop := controllertest.Run(t, server, endpoints.New)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}}}
	if _, err := c.Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, server, "web", 0, 0)
	for i := range 5 {
		pod, err := c.Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", i), Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		controllertest.ReportPhase(t, server, pod, corev1.PodRunning, fmt.Sprintf("10.42.0.%d", i+1))
	}
	expect(t, server, "web", 5, 0)
	// Deleted Endpoints are created again.
	if err := c.Endpoints("default").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, server, "web", 5, 0)

	// Endpoints without a Service are left alone while the loop runs. When it starts, it takes them for those of deleted Services, unless they are a leader
	// election lock.
	for name, annotations := range map[string]map[string]string{"byhand": nil, "lock": {"control-plane.alpha.kubernetes.io/leader": "{}"}} {
		if _, err := c.Endpoints("default").Create(ctx, &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Pods("default").Delete(ctx, "web-0", metav1.DeleteOptions{}); err != nil { // with grace: it is not gone, but ending
		t.Fatal(err)
	}
	expect(t, server, "web", 4, 0)
	if _, err := c.Endpoints("default").Get(ctx, "byhand", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	stop()
	if err := c.Services("default").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Run(t, server, endpoints.New)
	for _, name := range []string{"web", "byhand"} {
		controllertest.Eventually(t, func() string {
			if _, err := c.Endpoints("default").Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("%s is still there: %v", name, err)
			}
			return ""
		})
	}
	if _, err := c.Endpoints("default").Get(ctx, "lock", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
