package loadbalancer

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
)

type cluster struct {
	t   *testing.T
	api kubernetes.Interface
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) node(name string, ready bool, addresses ...string) {
	c.t.Helper()
	ctx := context.Background()
	n, err := c.api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		n, err = c.api.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		c.must(err)
	}
	n.Status.Addresses, n.Status.DaemonEndpoints.KubeletEndpoint.Port = nil, 10250
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	_, err = c.api.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
	c.must(err)
}

func (c *cluster) service(name string, change func(*corev1.Service), ports ...int32) {
	c.t.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", p), Port: p})
	}
	if change != nil {
		change(s)
	}
	_, err := c.api.CoreV1().Services("default").Create(context.Background(), s, metav1.CreateOptions{})
	c.must(err)
}

// expect waits until a Service has exactly these addresses.
func (c *cluster) expect(name, want string) {
	c.t.Helper()
	controllertest.Eventually(c.t, func() string {
		s, err := c.api.CoreV1().Services("default").Get(context.Background(), name, metav1.GetOptions{})
		c.must(err)
		var got []string
		for _, i := range s.Status.LoadBalancer.Ingress {
			got = append(got, i.IP)
		}
		if g := strings.Join(got, " "); g != want {
			return fmt.Sprintf("%s at %q instead of %q", name, want, g)
		}
		return ""
	})
}

func (c *cluster) expectEvent(name, text string) {
	c.t.Helper()
	controllertest.Eventually(c.t, func() string {
		list, err := c.api.CoreV1().Events("default").List(context.Background(), metav1.ListOptions{})
		c.must(err)
		for _, e := range list.Items {
			if e.InvolvedObject.Name == name && strings.Contains(e.Message, text) {
				return ""
			}
		}
		return "an event of " + name + " that says " + text
	})
}

func TestLoadBalancer(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, New)
	c := &cluster{t, server.Client()}
	c.service("web", nil, 80)
	c.expect("web", "")
	c.node("a", true, "192.0.2.1")
	c.node("b", true, "192.0.2.2", "2001:db8::2")
	c.node("c", false, "192.0.2.3")
	c.expect("web", "192.0.2.1 192.0.2.2")
	c.expectEvent("web", "Ensured load balancer")
	c.node("c", true, "192.0.2.3")
	c.node("a", false, "192.0.2.1")
	c.expect("web", "192.0.2.2 192.0.2.3")

	// A port belongs to one Service; the next gets it when that is deleted.
	c.service("later", nil, 443, 80)
	c.expectEvent("later", "port 80/TCP of the nodes is taken by service default/web")
	c.expect("later", "")
	c.service("third", nil, 443) // which the one that waits does not have
	c.expect("third", "192.0.2.2 192.0.2.3")
	c.must(c.api.CoreV1().Services("default").Delete(context.Background(), "third", metav1.DeleteOptions{}))
	c.must(c.api.CoreV1().Services("default").Delete(context.Background(), "web", metav1.DeleteOptions{}))
	c.expect("later", "192.0.2.2 192.0.2.3")

	// Ports of kubelets and the API server are not taken.
	c.service("kubelet", nil, 10250)
	c.expectEvent("kubelet", "port 10250/TCP of the nodes is the kubelet's")
	c.expect("kubelet", "")

	c.service("foreign", func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To("example.com/other") }, 8080)
	c.service("local", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }, 8080)
	_, err := c.api.DiscoveryV1().EndpointSlices("default").Create(context.Background(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "local-1", Labels: map[string]string{discoveryv1.LabelServiceName: "local"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.42.0.9"}, NodeName: ptr.To("c")}, {Addresses: []string{"10.42.0.8"}, NodeName: ptr.To("a")}},
	}, metav1.CreateOptions{})
	c.must(err)
	c.expect("local", "192.0.2.3")
	c.expect("foreign", "")
}
