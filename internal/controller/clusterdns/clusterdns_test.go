package clusterdns

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/stories"
)

// with returns a constructor of the loop with settings.
func with(change func(*controller.Config)) func(controller.Deps) controller.Loop {
	return func(d controller.Deps) controller.Loop {
		d.Config.ClusterDNS = "10.43.0.10"
		if change != nil {
			change(&d.Config)
		}
		return New(d)
	}
}

func TestStories(t *testing.T) { stories.Run(t, with(nil), stories.Options{Show: show}) }

func show(a controller.Action) string {
	verb, _, obj, ok := controller.Written(a)
	if !ok || verb == "delete" {
		return ""
	}
	switch o := obj.(type) {
	case *corev1.Service:
		text := fmt.Sprintf("%s %s, traffic %s\n", o.Spec.Type, o.Spec.ClusterIP, *o.Spec.InternalTrafficPolicy)
		for _, p := range o.Spec.Ports {
			text += fmt.Sprintf("port %s %d/%s\n", p.Name, p.Port, p.Protocol)
		}
		var labels []string
		for name, value := range o.Labels {
			labels = append(labels, "label "+name+"="+value)
		}
		slices.Sort(labels)
		return text + strings.Join(labels, "\n")
	case *discoveryv1.EndpointSlice:
		text := fmt.Sprintf("%s of %s %s\n", o.AddressType, o.OwnerReferences[0].Kind, o.OwnerReferences[0].UID)
		for _, p := range o.Ports {
			text += fmt.Sprintf("port %s %d/%s\n", *p.Name, *p.Port, *p.Protocol)
		}
		for _, e := range o.Endpoints {
			text += fmt.Sprintf("%s on %s ready=%v\n", e.Addresses[0], *e.NodeName, *e.Conditions.Ready)
		}
		return text
	}
	return ""
}

// An invalid address is an error, and without one nothing is done.
func TestAddress(t *testing.T) {
	server := apitest.Start(t)
	deps := controller.Deps{Informers: server.InProcess("test", "system:kube-controller-manager").Informers(client.InformerOptions{})}
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := deps.Informers.Core().V1().Namespaces().Informer().GetStore().Add(system); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"": "", "kube-dns": `invalid cluster DNS address: ParseAddr("kube-dns"): unable to parse IP`,
	} {
		deps.Config.ClusterDNS = address
		d := New(deps).Reconcile(key, stories.Epoch)
		if got := d.Err; got != nil && got.Error() != want || got == nil && want != "" || len(d.Actions) > 0 {
			t.Errorf("%q: %v %v", address, got, d.Actions)
		}
	}
}

func addNode(t *testing.T, server *apitest.Server, name, ip string) *corev1.Node {
	t.Helper()
	nodes := server.Client().CoreV1().Nodes()
	node, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{PortAnnotation: "10053"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: ip}}
	return setReady(t, server, node, corev1.ConditionTrue)
}

func setReady(t *testing.T, server *apitest.Server, node *corev1.Node, ready corev1.ConditionStatus) *corev1.Node {
	t.Helper()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	node, err := server.Client().CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// behind returns the addresses in all of this loop's slices.
func behind(t *testing.T, server *apitest.Server) (addresses []string, largest, count int) {
	t.Helper()
	list, err := server.Client().DiscoveryV1().EndpointSlices(namespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name + "," + discoveryv1.LabelManagedBy + "=" + managedBy})
	if err != nil {
		t.Fatal(err)
	}
	for _, slice := range list.Items {
		largest = max(largest, len(slice.Endpoints))
		for _, e := range slice.Endpoints {
			addresses = append(addresses, e.Addresses[0])
		}
	}
	slices.Sort(addresses)
	return addresses, largest, len(list.Items)
}

func expectBehind(t *testing.T, server *apitest.Server, want ...string) {
	t.Helper()
	controllertest.Eventually(t, func() string {
		if got, _, _ := behind(t, server); !slices.Equal(got, want) {
			return fmt.Sprintf("%v behind the Service, not %v", got, want)
		}
		return ""
	})
}

func service(t *testing.T, server *apitest.Server) *corev1.Service {
	t.Helper()
	s, err := server.Client().CoreV1().Services(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The Service is created with the first node, follows the nodes, is repaired, is left to an add-on and taken back, and deleted when DNS is disabled.
func TestLife(t *testing.T) {
	server := apitest.Start(t)
	services := server.Client().CoreV1().Services(namespace)
	stop := controllertest.Run(t, server, with(nil))
	one := addNode(t, server, "n1", "192.0.2.1")
	controllertest.Eventually(t, func() string {
		if s := service(t, server); s == nil || s.Spec.ClusterIP != "10.43.0.10" || len(s.Spec.Ports) != 2 {
			return "the Service"
		}
		return ""
	})
	expectBehind(t, server, "192.0.2.1")
	addNode(t, server, "n2", "192.0.2.2")
	expectBehind(t, server, "192.0.2.1", "192.0.2.2")
	one = setReady(t, server, one, corev1.ConditionUnknown)
	expectBehind(t, server, "192.0.2.2")
	setReady(t, server, one, corev1.ConditionTrue)
	expectBehind(t, server, "192.0.2.1", "192.0.2.2")

	// The Service is changed by hand.
	s := service(t, server)
	s.Spec.InternalTrafficPolicy, s.Labels = nil, map[string]string{ownerLabel: managedBy, "mine": "too"}
	if _, err := services.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, func() string {
		s := service(t, server)
		if *s.Spec.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyLocal || s.Labels["k8s-app"] != name || s.Labels["mine"] != "too" {
			return "the Service repaired"
		}
		return ""
	})
	// The Service is deleted by hand.
	if err := services.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, func() string {
		is := service(t, server)
		if is == nil || is.UID == s.UID {
			return "another Service"
		}
		list, err := server.Client().DiscoveryV1().EndpointSlices(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || list.Items[0].OwnerReferences[0].UID != is.UID {
			return "slices that are the new one's"
		}
		return ""
	})

	// CoreDNS is installed as an add-on.
	s = service(t, server)
	local := corev1.ServiceInternalTrafficPolicyCluster
	s.Spec.Selector, s.Spec.InternalTrafficPolicy = map[string]string{"k8s-app": name}, &local
	if _, err := services.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectBehind(t, server)
	if s = service(t, server); s == nil || *s.Spec.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyCluster {
		t.Errorf("the add-on's Service was changed: %+v", s)
	}
	// CoreDNS is removed again.
	s.Spec.Selector = nil
	if _, err := services.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectBehind(t, server, "192.0.2.1", "192.0.2.2")
	stop()

	// DNS is disabled.
	controllertest.Run(t, server, with(func(c *controller.Config) { c.DisableClusterDNS = true }))
	expectBehind(t, server)
	controllertest.Eventually(t, func() string {
		if service(t, server) != nil {
			return "the Service gone"
		}
		return ""
	})
}

// Disabled, it leaves alone what it did not create.
func TestOffLeavesOthersAlone(t *testing.T) {
	server := apitest.Start(t)
	theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"k8s-app": name}},
		Spec: corev1.ServiceSpec{ClusterIP: "10.43.0.10", Ports: []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}}}}
	if _, err := server.Client().CoreV1().Services(namespace).Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	yes := true
	for _, slice := range []*discoveryv1.EndpointSlice{
		{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Labels: map[string]string{discoveryv1.LabelServiceName: name}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "ours", Labels: map[string]string{discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: managedBy}}},
	} {
		slice.AddressType, slice.Endpoints = discoveryv1.AddressTypeIPv4, []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.9"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}}}
		if _, err := server.Client().DiscoveryV1().EndpointSlices(namespace).Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	controllertest.Run(t, server, with(func(c *controller.Config) { c.DisableClusterDNS = true }))
	expectBehind(t, server)
	list, err := server.Client().DiscoveryV1().EndpointSlices(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "theirs" || service(t, server) == nil {
		t.Errorf("what is left: %+v %v", list.Items, err)
	}
}

// Many nodes need several slices, and deleted ones make room for others.
func TestManyNodes(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, with(nil))
	var nodes []*corev1.Node
	for i := range 230 {
		nodes = append(nodes, addNode(t, server, fmt.Sprintf("n%03d", i), fmt.Sprintf("192.0.2.%d", i)))
	}
	expect := func(want int) {
		t.Helper()
		controllertest.Eventually(t, func() string {
			got, largest, count := behind(t, server)
			if len(got) != want || largest > maxEndpoints || len(slices.Compact(got)) != want {
				return fmt.Sprintf("%d endpoints in %d slices of at most %d, not %d", len(got), count, largest, want)
			}
			return ""
		})
	}
	expect(230)
	for _, node := range nodes[:60] {
		if err := server.Client().CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	expect(170)
	for i := range 20 {
		addNode(t, server, fmt.Sprintf("m%d", i), fmt.Sprintf("198.51.100.%d", i+1))
	}
	expect(190)
	if _, _, count := behind(t, server); count > 3 {
		t.Errorf("190 endpoints are in %d slices", count)
	}
}
