package namespace_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/namespace"
)

// A namespace ends while an aggregated API server is down that has said that nothing of it can be deleted, as metrics-server does. It does not while one
// is down that has never said what it serves; the namespace's condition says so.
func TestEndsWhileAggregatedServerIsDown(t *testing.T) {
	server := apitest.Start(t)
	c := server.Client()
	controllertest.Run(t, server, namespace.New)
	metrics := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		_ = json.NewEncoder(w).Encode(apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{{ObjectMeta: metav1.ObjectMeta{Name: "metrics.example.com"},
			Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{{Resource: "pods", Scope: apidiscoveryv2.ScopeNamespace,
				Verbs: []string{"get", "list"}, ResponseKind: &metav1.GroupVersionKind{Kind: "PodMetrics"}}}}}}}})
	}))
	defer metrics.Close()
	_, port, _ := net.SplitHostPort(metrics.Listener.Addr().String())
	number, _ := strconv.Atoi(port)
	_, err := c.CoreV1().Services("default").Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "metrics"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}, metav1.CreateOptions{})
	check(t, err)
	aggregate(t, c, "metrics", int32(number))
	awaitDiscovery(t, c, "") // it has said what it serves
	check(t, c.CoreV1().Services("default").Delete(t.Context(), "metrics", metav1.DeleteOptions{}))
	awaitDiscovery(t, c, "stale GroupVersion discovery: metrics.example.com/v1")

	create(t, c, "ends")
	check(t, c.CoreV1().Namespaces().Delete(t.Context(), "ends", metav1.DeleteOptions{}))
	gone(t, c, "ends")

	aggregate(t, c, "never", 443)
	awaitDiscovery(t, c, "stale GroupVersion discovery: never.example.com/v1")
	create(t, c, "stays")
	check(t, c.CoreV1().Namespaces().Delete(t.Context(), "stays", metav1.DeleteOptions{}))
	controllertest.Eventually(t, func() string {
		ns, err := c.CoreV1().Namespaces().Get(t.Context(), "stays", metav1.GetOptions{})
		check(t, err)
		for _, condition := range ns.Status.Conditions {
			if condition.Type == corev1.NamespaceDeletionDiscoveryFailure && strings.HasPrefix(condition.Message, "Discovery failed for some groups, 1 failing") {
				return ""
			}
		}
		return fmt.Sprintf("the condition: %+v", ns.Status)
	})
	check(t, c.CoreV1().RESTClient().Delete().AbsPath(apiServices, "v1.never.example.com").Do(t.Context()).Error())
	gone(t, c, "stays")
}

const apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"

// aggregate makes the APIService of group NAME.example.com, which the Service NAME serves.
func aggregate(t *testing.T, c kubernetes.Interface, name string, port int32) {
	t.Helper()
	group := name + ".example.com"
	body, err := json.Marshal(apiregistrationv1.APIService{TypeMeta: metav1.TypeMeta{Kind: "APIService", APIVersion: "apiregistration.k8s.io/v1"}, ObjectMeta: metav1.ObjectMeta{Name: "v1." + group},
		Spec: apiregistrationv1.APIServiceSpec{Group: group, Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: name, Port: &port}}})
	check(t, err)
	check(t, c.CoreV1().RESTClient().Post().AbsPath(apiServices).SetHeader("Content-Type", "application/json").Body(body).Do(t.Context()).Error())
}

// awaitDiscovery waits until discovery fails with text, or succeeds and has the metrics if there is none.
func awaitDiscovery(t *testing.T, c kubernetes.Interface, text string) {
	t.Helper()
	controllertest.Eventually(t, func() string {
		_, lists, err := c.Discovery().ServerGroupsAndResources()
		has := false
		for _, list := range lists {
			has = has || list.GroupVersion == "metrics.example.com/v1" && len(list.APIResources) > 0
		}
		if text == "" && err == nil && has || text != "" && err != nil && strings.Contains(err.Error(), text) {
			return ""
		}
		return fmt.Sprintf("discovery to say %q: %v, %v", text, has, err)
	})
}
