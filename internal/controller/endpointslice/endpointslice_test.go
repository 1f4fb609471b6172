package endpointslice_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/endpointslice"
)

// behind returns the endpoints of a Service, ready and in all, and its slices.
func behind(t *testing.T, server *apitest.Server, service string) (ready, all, slices int) {
	t.Helper()
	list, err := server.Client().DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, slice := range list.Items {
		if len(slice.Endpoints) > 100 {
			t.Errorf("%s has %d endpoints", slice.Name, len(slice.Endpoints))
		}
		for _, e := range slice.Endpoints {
			if seen[e.Addresses[0]] {
				t.Errorf("%s is in two slices", e.Addresses[0])
			}
			seen[e.Addresses[0]] = true
			all++
			if *e.Conditions.Ready {
				ready++
			}
		}
	}
	return ready, all, len(list.Items)
}

func expect(t *testing.T, server *apitest.Server, service string, ready, all, slices int) {
	t.Helper()
	controllertest.Eventually(t, func() string {
		if r, a, s := behind(t, server, service); r != ready || a != all || s != slices {
			return fmt.Sprintf("%d ready of %d endpoints in %d slices, not %d of %d in %d", r, a, s, ready, all, slices)
		}
		return ""
	})
}

// TestService follows a Service: pods are added, fail their probes, terminate, change their labels.
func TestService(t *testing.T) {
	server := apitest.Start(t)
	c, ctx := server.Client().CoreV1(), t.Context()
	stop := controllertest.Run(t, server, endpointslice.New)
	if _, err := c.Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "east"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"team": "a"}},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}}}
	if _, err := c.Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, server, "web", 0, 0, 1) // the empty one
	const n = 120
	var pods []*corev1.Pod
	for i := range n {
		pod, err := c.Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", i), Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		controllertest.ReportPhase(t, server, pod, corev1.PodRunning, fmt.Sprintf("10.42.0.%d", i+1))
		pods = append(pods, pod)
	}
	expect(t, server, "web", n, n, 2)

	stop() // changes while the loop does not run
	patch := func(name, data string, sub ...string) {
		t.Helper()
		if _, err := c.Pods("default").Patch(ctx, name, types.StrategicMergePatchType, []byte(data), metav1.PatchOptions{}, sub...); err != nil {
			t.Fatal(err)
		}
	}
	patch("web-0", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "status")
	patch("web-1", `{"metadata":{"labels":{"app":"other"}}}`)
	patch("web-2", `{"status":{"phase":"Failed"}}`, "status")
	controllertest.Run(t, server, endpointslice.New)
	expect(t, server, "web", n-3, n-2, 2)
	patch("web-1", `{"metadata":{"labels":{"app":"web"}}}`)
	patch("web-0", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "status")
	expect(t, server, "web", n-1, n-1, 2)

	zero := int64(0)
	for _, pod := range pods[3:] {
		if err := c.Pods("default").Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, server, "web", 2, 2, 1)
	list, err := server.Client().DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: "team=a"})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d slices have the Service's labels: %v", len(list.Items), err)
	}
	slice := list.Items[0]
	if owner := metav1.GetControllerOf(&slice); owner == nil || owner.Kind != "Service" || owner.Name != "web" {
		t.Errorf("owner %+v", owner)
	}
	if slice.Labels[discoveryv1.LabelManagedBy] != "endpointslice-controller.k8s.io" || *slice.Endpoints[0].Zone != "east" || *slice.Ports[0].Port != 8080 {
		t.Errorf("%+v", slice)
	}
}
