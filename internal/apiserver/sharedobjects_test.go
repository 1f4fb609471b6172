package apiserver_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authn"
	"skiff/internal/client"
	"skiff/internal/store"
	"skiff/internal/store/memory"
)

var (
	_ client.Source = (*apiserver.Server)(nil)

	maps = client.Shared{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}
)

type testServer struct {
	*apiserver.Server
	store store.Store
}

// sharedServer is a server with a view of it and a typed client.
func sharedServer(t *testing.T) (testServer, client.View, kubernetes.Interface) {
	t.Helper()
	kept := memory.New(memory.Options{})
	server, err := apiserver.New(apiserver.Options{Store: kept, Log: slog.New(slog.DiscardHandler), GuardShared: func(problem string) { t.Error(problem) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Close()
		kept.Close()
	})
	if err := server.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := client.ForServer(server, client.Identity{Component: "tester", User: "tester"})
	if err != nil {
		t.Fatal(err)
	}
	// The server's own would be among those that are listed.
	if err := c.Kubernetes().CoreV1().ConfigMaps("kube-system").Delete(t.Context(), "kube-apiserver-legacy-service-account-token-tracking", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	return testServer{server, kept}, server.As(&authn.User{Username: "tester"}), c.Kubernetes()
}

func create(t *testing.T, c kubernetes.Interface, namespace, name, app string) *corev1.ConfigMap {
	t.Helper()
	cm, err := c.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

func take(t *testing.T, w watch.Interface, n int) (got []string) {
	t.Helper()
	for range n {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatalf("the watch ended after %q", got)
			}
			got = append(got, show(e))
		case <-time.After(10 * time.Second):
			t.Fatalf("nothing came after %q", got)
		}
	}
	return got
}

func show(e watch.Event) string {
	switch o := e.Object.(type) {
	case *metav1.Status:
		return fmt.Sprintf("%s %d", e.Type, o.Code)
	case metav1.Object:
		if e.Type == watch.Bookmark {
			return fmt.Sprintf("%s %T %v", e.Type, o, o.GetAnnotations())
		}
		return fmt.Sprintf("%s %s/%s", e.Type, o.GetNamespace(), o.GetName())
	}
	return fmt.Sprintf("%s %T", e.Type, e.Object)
}

func equal(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestSharedList(t *testing.T) {
	_, v, c := sharedServer(t)
	for i := range 5 {
		create(t, c, "default", fmt.Sprintf("cm-%d", i), "a")
	}
	create(t, c, "kube-system", "other", "b")
	list := func(what client.Shared, opts metav1.ListOptions) ([]string, metav1.ListMeta) {
		t.Helper()
		objects, meta, err := v.List(t.Context(), what, opts)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, o := range objects {
			names = append(names, o.(metav1.Object).GetName())
		}
		return names, meta
	}
	names, meta := list(maps, metav1.ListOptions{})
	equal(t, names, "cm-0", "cm-1", "cm-2", "cm-3", "cm-4", "other")
	if meta.ResourceVersion == "" {
		t.Error("no resourceVersion")
	}
	names, _ = list(maps, metav1.ListOptions{LabelSelector: "app=b"})
	equal(t, names, "other")
	names, _ = list(client.Shared{Resource: maps.Resource, Namespace: "kube-system"}, metav1.ListOptions{FieldSelector: "metadata.name=cm-1"})
	equal(t, names)
	names, meta = list(maps, metav1.ListOptions{Limit: 4})
	equal(t, names, "cm-0", "cm-1", "cm-2", "cm-3")
	names, _ = list(maps, metav1.ListOptions{Limit: 4, Continue: meta.Continue})
	equal(t, names, "cm-4", "other")

	_, _, err := v.List(t.Context(), maps, metav1.ListOptions{FieldSelector: "spec.nothing=1"})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("an unknown field: %v", err)
	}
	_, _, err = v.List(t.Context(), client.Shared{Resource: schema.GroupVersionResource{Group: "no", Version: "v1", Resource: "such"}}, metav1.ListOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("an unknown resource: %v", err)
	}
}

func TestSharedWatch(t *testing.T) {
	server, v, c := sharedServer(t)
	first := create(t, c, "default", "first", "a")
	second := create(t, c, "default", "second", "a")
	open := func(what client.Shared, opts metav1.ListOptions) watch.Interface {
		t.Helper()
		w, err := v.Watch(t.Context(), what, opts)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	yes := true
	watchList := metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true}

	w := open(maps, watchList)
	equal(t, take(t, w, 3), "ADDED default/first", "ADDED default/second", "BOOKMARK *v1.ConfigMap map[k8s.io/initial-events-end:true]")
	onlyMetadata := maps
	onlyMetadata.MetadataOnly = true
	m := open(onlyMetadata, watchList)
	equal(t, take(t, m, 3), "ADDED default/first", "ADDED default/second", "BOOKMARK *v1.PartialObjectMetadata map[k8s.io/initial-events-end:true]")
	equal(t, take(t, open(maps, metav1.ListOptions{ResourceVersion: first.ResourceVersion}), 1), "ADDED default/second")
	selecting := open(maps, metav1.ListOptions{ResourceVersion: second.ResourceVersion, LabelSelector: "app=b"})

	second.Labels["app"] = "b"
	if _, err := c.CoreV1().ConfigMaps("default").Update(t.Context(), second, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.CoreV1().ConfigMaps("default").Delete(t.Context(), "second", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	equal(t, take(t, w, 2), "MODIFIED default/second", "DELETED default/second")
	equal(t, take(t, m, 2), "MODIFIED default/second", "DELETED default/second")
	equal(t, take(t, selecting, 2), "ADDED default/second", "DELETED default/second")

	w.Stop()
	for range w.ResultChan() { // is closed
	}
	ctx, cancel := context.WithCancel(t.Context())
	byContext, err := v.Watch(ctx, maps, watchList)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for range byContext.ResultChan() {
	}
	if _, err := v.Watch(t.Context(), maps, metav1.ListOptions{ResourceVersion: "nonsense"}); !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		t.Errorf("a nonsensical version: %v", err)
	}
	server.Close()
	for range m.ResultChan() { // the server has gone
	}
	if _, err := v.Watch(t.Context(), maps, watchList); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a watch of a closed server: %v", err)
	}
}

// TestSharedSlow has a reader fall so far behind that not even the store remembers what it missed: it must be told that.
func TestSharedSlow(t *testing.T) {
	server, v, c := sharedServer(t)
	cm := create(t, c, "default", "busy", "a")
	w, err := v.Watch(t.Context(), maps, metav1.ListOptions{ResourceVersion: cm.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	const key, changes = "/registry/configmaps/default/busy", 9000 // more than the cache remembers
	kv, _, err := server.store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	change := func() (revision int64) {
		for range changes {
			if revision, err = server.store.Put(t.Context(), key, kv.Value, store.PutOptions{IfRevision: store.AnyRevision}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), "busy", metav1.GetOptions{}); err != nil { // when the cache has seen it all
			t.Fatal(err)
		}
		return revision
	}
	change()
	for range changes {
		equal(t, take(t, w, 1), "MODIFIED default/busy")
	}
	newest := change()
	if err := server.store.Compact(t.Context(), newest); err != nil {
		t.Fatal(err)
	}
	var last watch.Event
	for e := range w.ResultChan() {
		last = e
	}
	if got := show(last); got != "ERROR 410" {
		t.Errorf("ended with %s", got)
	}
}

// TestSharedViews reads objects in a second form: each reader gets its own.
func TestSharedViews(t *testing.T) {
	_, v, c := sharedServer(t)
	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "hpa"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 3, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "d", APIVersion: "apps/v1"}}}
	if _, err := c.AutoscalingV2().HorizontalPodAutoscalers("default").Create(t.Context(), hpa, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	overHTTP, err := c.AutoscalingV1().HorizontalPodAutoscalers("default").Get(t.Context(), "hpa", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	read := func(version string) runtime.Object {
		t.Helper()
		objects, _, err := v.List(t.Context(), client.Shared{Resource: schema.GroupVersionResource{Group: "autoscaling", Version: version, Resource: "horizontalpodautoscalers"}}, metav1.ListOptions{})
		if err != nil || len(objects) != 1 {
			t.Fatalf("%v %v", objects, err)
		}
		return objects[0]
	}
	if _, ok := read("v2").(*autoscalingv2.HorizontalPodAutoscaler); !ok {
		t.Errorf("v2 is %T", read("v2"))
	}
	if got := read("v1").(*autoscalingv1.HorizontalPodAutoscaler); !reflect.DeepEqual(got, overHTTP) {
		t.Errorf("in process %v\nover HTTP %v", got, overHTTP)
	}
}

// TestViewHandler has a request without any credential come from the view's user.
func TestViewHandler(t *testing.T) {
	server, v, _ := sharedServer(t)
	for handler, want := range map[http.Handler]int{server: 401, v: 200} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest("GET", "/api/v1/namespaces/default", nil))
		if answer.Code != want {
			body, _ := io.ReadAll(answer.Body)
			t.Errorf("%T: %d %s", handler, answer.Code, body)
		}
	}
}
