package garbagecollector_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/garbagecollector"
	"skiff/internal/controller/namespace"
)

// widgets is an aggregated API server with widgets of group widgets.example.com, of which it shows the metadata.
type widgets struct {
	mu      sync.Mutex
	objects map[string]metav1.ObjectMeta // by NAMESPACE/NAME
}

func (s *widgets) put(namespace, name string, owner *metav1.OwnerReference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name), ResourceVersion: "1"}
	if owner != nil {
		m.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	s.objects[namespace+"/"+name] = m
}

// left returns the names of the widgets that remain.
func (s *widgets) left() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(s.objects)), " ")
}

const widgetsPath = "/apis/widgets.example.com/v1/"

func (s *widgets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	rest, isResource := strings.CutPrefix(r.URL.Path, widgetsPath)
	switch {
	case r.URL.Path == "/apis":
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		_ = json.NewEncoder(w).Encode(apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
			Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{{Resource: "widgets", Scope: apidiscoveryv2.ScopeNamespace,
				Verbs: []string{"get", "list", "watch", "delete", "deletecollection", "patch"}, ResponseKind: &metav1.GroupVersionKind{Group: "widgets.example.com", Version: "v1", Kind: "Widget"}}}}}}}})
	case !isResource:
		_, _ = w.Write([]byte("{}"))
	case r.URL.Query().Get("sendInitialEvents") != "": // as servers without watch lists
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		<-r.Context().Done() // nothing changes but by the collector
	default:
		s.serve(w, r, strings.Split(strings.TrimPrefix(rest, "namespaces/"), "/"))
	}
}

func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason) {
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: code})
}

// serve serves lists, gets and deletes. at is "widgets", "NAMESPACE/widgets" or "NAMESPACE/widgets/NAME".
func (s *widgets) serve(w http.ResponseWriter, r *http.Request, at []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(at) == 3 {
		key := path.Join(at[0], at[2])
		m, found := s.objects[key]
		if !found {
			refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
			return
		}
		if r.Method == http.MethodDelete {
			delete(s.objects, key)
		}
		_ = json.NewEncoder(w).Encode(metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: m})
		return
	}
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for key, m := range s.objects {
		if len(at) == 2 && m.Namespace != at[0] {
			continue
		}
		if r.Method == http.MethodDelete {
			delete(s.objects, key)
			continue
		}
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: m})
	}
	_ = json.NewEncoder(w).Encode(list)
}

// Objects of another API server are collected when their owners here are gone, and end with their namespaces.
func TestCollectsAggregatedObjects(t *testing.T) {
	server := apitest.Start(t)
	c := server.Client()
	controllertest.Run(t, server, garbagecollector.New, namespace.New)
	s := &widgets{objects: map[string]metav1.ObjectMeta{}}
	backend := httptest.NewTLSServer(s)
	t.Cleanup(func() {
		backend.CloseClientConnections()
		backend.Close()
	})
	owner, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	check(t, err)
	_, err = c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ends"}}, metav1.CreateOptions{})
	check(t, err)
	byOwner := ref("v1", "ConfigMap", owner)
	s.put("default", "owned", &byOwner)
	s.put("default", "kept", nil)
	s.put("ends", "inside", nil)

	_, err = c.CoreV1().Services("default").Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "widgets"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}, metav1.CreateOptions{})
	check(t, err)
	port := int32(backend.Listener.Addr().(*net.TCPAddr).Port)
	body, err := json.Marshal(apiregistrationv1.APIService{TypeMeta: metav1.TypeMeta{Kind: "APIService", APIVersion: "apiregistration.k8s.io/v1"}, ObjectMeta: metav1.ObjectMeta{Name: "v1.widgets.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{Group: "widgets.example.com", Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "widgets", Port: &port}}})
	check(t, err)
	check(t, c.CoreV1().RESTClient().Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").SetHeader("Content-Type", "application/json").Body(body).Do(t.Context()).Error())
	controllertest.Eventually(t, func() string {
		if list, err := c.Discovery().ServerResourcesForGroupVersion("widgets.example.com/v1"); err != nil {
			return fmt.Sprint("widgets to be served: ", list, err)
		}
		return ""
	})
	check(t, c.CoreV1().ConfigMaps("default").Delete(t.Context(), "owner", metav1.DeleteOptions{}))
	check(t, c.CoreV1().Namespaces().Delete(t.Context(), "ends", metav1.DeleteOptions{}))
	controllertest.Eventually(t, func() string {
		if got := s.left(); got != "default/kept" {
			return "one widget to remain, there are " + got
		}
		return ""
	})
	controllertest.Eventually(t, func() string {
		if _, err := c.CoreV1().Namespaces().Get(t.Context(), "ends", metav1.GetOptions{}); err == nil {
			return "the namespace to end"
		}
		return ""
	})
}
