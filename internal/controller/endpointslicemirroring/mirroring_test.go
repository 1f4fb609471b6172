package endpointslicemirroring_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/endpointslicemirroring"
)

// TestMirror creates, changes and deletes Endpoints, as the conformance test of that does.
func TestMirror(t *testing.T) {
	server := apitest.Start(t)
	c, ctx := server.Client().CoreV1(), t.Context()
	controllertest.Run(t, server, endpointslicemirroring.New)
	expect := func(address string) {
		t.Helper()
		controllertest.Eventually(t, func() string {
			list, err := server.Client().DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=out"})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, slice := range list.Items {
				for _, e := range slice.Endpoints {
					got = append(got, e.Addresses...)
				}
			}
			if address == "" && len(list.Items) == 0 || len(list.Items) == 1 && len(got) == 1 && got[0] == address {
				return ""
			}
			return fmt.Sprintf("%d slices, addresses %v, not %q", len(list.Items), got, address)
		})
	}
	if _, err := c.Services("default").Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "out"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "out"}, Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "10.1.2.3"}}, Ports: []corev1.EndpointPort{{Port: 80}}}}}
	e, err := c.Endpoints("default").Create(ctx, e, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect("10.1.2.3")
	e.Subsets[0].Addresses[0].IP = "10.2.3.4"
	if _, err := c.Endpoints("default").Update(ctx, e, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("10.2.3.4")
	if err := c.Endpoints("default").Delete(ctx, "out", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("")
}
