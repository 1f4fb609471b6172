package garbagecollector

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apitest"
	"skiff/internal/controller"
	"skiff/internal/controller/controllertest"
)

// Of each resource that can be deleted and watched one version is monitored; all versions are known.
func TestFollowed(t *testing.T) {
	all := []string{"create", "delete", "list", "watch"}
	r := resources{served: map[kindName]*kind{}, monitored: map[schema.GroupVersionResource]*kind{}}
	r.add([]*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: all}, {Name: "pods/log", Kind: "Pod", Namespaced: true, Verbs: all},
			{Name: "events", Kind: "Event", Namespaced: true, Verbs: all}, {Name: "componentstatuses", Kind: "ComponentStatus", Verbs: []string{"get", "list"}}}},
		{GroupVersion: "example.com/v1beta1", APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget", Verbs: all}, {Name: "olds", Kind: "Old", Verbs: all}}},
		{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget", Verbs: all}}},
		{GroupVersion: "example.com/v2", APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget", Verbs: all}}},
		{GroupVersion: "a/b/c", APIResources: []metav1.APIResource{{Name: "wrongs", Kind: "Wrong", Verbs: all}}},
	}, map[string]string{"": "v1", "example.com": "v1"})
	var monitored, served []string
	for gvr := range r.monitored {
		monitored = append(monitored, gvr.GroupVersion().String()+" "+gvr.Resource)
	}
	for by := range r.served {
		served = append(served, by.apiVersion+" "+by.kind)
	}
	slices.Sort(monitored)
	slices.Sort(served)
	if want := []string{"example.com/v1 widgets", "example.com/v1beta1 olds", "v1 pods"}; !slices.Equal(monitored, want) {
		t.Errorf("monitored: %v", monitored)
	}
	if want := []string{"example.com/v1 Widget", "example.com/v1beta1 Old", "example.com/v1beta1 Widget", "example.com/v2 Widget", "v1 ComponentStatus", "v1 Event", "v1 Pod"}; !slices.Equal(served, want) {
		t.Errorf("served: %v", served)
	}
}

// Resources are added and removed, as custom ones are, and cannot always be discovered. The collector monitors those that are served, and leaves objects
// alone whose owners are of an unknown kind.
func TestResourcesComeAndGo(t *testing.T) {
	server := apitest.Start(t)
	c := server.Client().CoreV1()
	var mu sync.Mutex
	hidden, failing, rounds := true, false, 0
	set := func(h, f bool) (since int) {
		mu.Lock()
		defer mu.Unlock()
		hidden, failing = h, f
		return rounds
	}
	var made *collector
	controllertest.Run(t, server, func(deps controller.Deps) controller.Loop {
		loop := New(deps)
		made = newCollector(deps)
		all := made.discover
		secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
		made.rediscover = 20 * time.Millisecond
		made.discover = func() (resources, error) {
			r, err := all()
			mu.Lock()
			defer mu.Unlock()
			rounds++
			if hidden || failing {
				delete(r.served, kindName{"v1", "Secret"})
				delete(r.monitored, secrets)
			}
			if failing {
				r.failed[secrets.GroupVersion()] = true
			}
			return r, err
		}
		loop.Run = made.run
		return loop
	})
	secret, err := c.Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "owner", UID: secret.UID}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	becomes := func(what string, holds func(n *node) bool) {
		t.Helper()
		controllertest.Eventually(t, func() (missing string) {
			made.locked(func() {
				if n := made.graph.nodes[secret.UID]; !holds(n) {
					missing = what
				}
			})
			return missing
		})
	}
	inDoubt := func(n *node) bool {
		return n != nil && n.meta == nil && len(n.claims) == 1 && n.claims[0].answer == unknown
	}
	seen := func(n *node) bool { return n != nil && n.meta != nil && len(n.claims) == 0 }
	becomes("an owner of an unknown kind to be in doubt", inDoubt)
	set(false, false)
	becomes("it to be seen when its kind comes", seen)
	since := set(false, true)
	controllertest.Eventually(t, func() string {
		mu.Lock()
		defer mu.Unlock()
		if rounds < since+3 {
			return "more rounds"
		}
		return ""
	})
	made.locked(func() {
		if !seen(made.graph.nodes[secret.UID]) {
			t.Error("it was forgotten because its kind could not be discovered for a while")
		}
	})
	set(true, false)
	becomes("it to be in doubt when its kind goes", func(n *node) bool { return n != nil && n.meta == nil })
	set(false, false)
	becomes("it to be seen again", seen)
	if err := c.Secrets("default").Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes("it to be gone, and what it owned", func(n *node) bool { return n == nil })
}

// Discovery that returns nothing is retried.
func TestNothingDiscovered(t *testing.T) {
	server := apitest.Start(t)
	made := newCollector(controller.Deps{Client: server.InProcess("test", "system:kube-controller-manager"), Log: slog.New(slog.DiscardHandler)})
	made.discover = func() (resources, error) { return resources{}, errors.New("not now") }
	if made.syncMonitors(t.Context()) || made.allSynced {
		t.Error("it goes on without knowing anything")
	}
}
