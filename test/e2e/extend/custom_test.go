package extend

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"skiff/skifftest"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets     = schema.GroupVersionResource{Group: "shop.example.com", Version: "v1", Resource: "widgets"}
)

// shop is a cluster in which Widgets are defined.
type shop struct {
	t       *testing.T
	server  *skifftest.Server
	dynamic dynamic.Interface
	typed   kubernetes.Interface
}

func open(t *testing.T, opts ...skifftest.Option) *shop {
	t.Helper()
	server := skifftest.Start(t, opts...)
	c, err := dynamic.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{t: t, server: server, dynamic: c, typed: server.Client()}
	s.define()
	return s
}

// define creates the definition of Widgets and waits until it is established.
func (s *shop) define() {
	s.t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.shop.example.com"},
		"spec": map[string]any{"group": "shop.example.com", "scope": "Namespaced", "names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}}}
	if _, err := s.dynamic.Resource(definitions).Create(s.t.Context(), definition, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, func() string {
		got, err := s.dynamic.Resource(definitions).Get(s.t.Context(), definition.GetName(), metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "Established" && c["status"] == "True" {
				return ""
			}
		}
		return "not established"
	})
}

func (s *shop) widgets() dynamic.ResourceInterface {
	return s.dynamic.Resource(widgets).Namespace("default")
}

// make creates a widget with owners.
func (s *shop) make(name string, change func(*unstructured.Unstructured), owners ...metav1.OwnerReference) *unstructured.Unstructured {
	s.t.Helper()
	w := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "shop.example.com/v1", "kind": "Widget", "spec": map[string]any{"size": int64(1)}}}
	w.SetName(name)
	w.SetOwnerReferences(owners)
	if change != nil {
		change(w)
	}
	made, err := s.widgets().Create(s.t.Context(), w, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

// makeConfigMap creates a config map with an owner.
func (s *shop) makeConfigMap(name string, owner metav1.OwnerReference) {
	s.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{owner}}}
	if _, err := s.typed.CoreV1().ConfigMaps("default").Create(s.t.Context(), cm, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) remove(name string, how metav1.DeletionPropagation) {
	s.t.Helper()
	if err := s.widgets().Delete(s.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &how}); err != nil {
		s.t.Fatal(err)
	}
}

// gone waits until there is neither a widget nor a config map of a name.
func (s *shop) gone(names ...string) {
	s.t.Helper()
	eventually(s.t, func() string {
		for _, name := range names {
			_, err := s.widgets().Get(s.t.Context(), name, metav1.GetOptions{})
			_, err2 := s.typed.CoreV1().ConfigMaps("default").Get(s.t.Context(), name, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) || !apierrors.IsNotFound(err2) {
				return fmt.Sprintf("%s is still there: %v, %v", name, err, err2)
			}
		}
		return ""
	})
}

func ownedBy(w *unstructured.Unstructured, blocking bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: w.GetAPIVersion(), Kind: w.GetKind(), Name: w.GetName(), UID: w.GetUID(), BlockOwnerDeletion: &blocking}
}

// eventually waits until nothing is missing.
func eventually(t *testing.T, holds func() (missing string)) {
	t.Helper()
	missing := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if missing = holds(); missing == "" {
			return
		}
	}
	t.Fatalf("after a minute: %s", missing)
}

// TestCollected deletes widgets that own others and built-in objects, in each of the three ways.
func TestCollected(t *testing.T) {
	s := open(t, skifftest.WithControllers())
	t.Run("background", func(t *testing.T) {
		first := s.make("first", nil)
		second := s.make("second", nil, ownedBy(first, false))
		s.makeConfigMap("third", ownedBy(second, false))
		s.remove("first", metav1.DeletePropagationBackground)
		s.gone("first", "second", "third")
	})
	t.Run("foreground", func(t *testing.T) {
		owner := s.make("owner", nil)
		s.make("held", func(w *unstructured.Unstructured) { w.SetFinalizers([]string{"shop.example.com/hold"}) }, ownedBy(owner, true))
		s.remove("owner", metav1.DeletePropagationForeground)
		eventually(t, func() string {
			if held, err := s.widgets().Get(t.Context(), "held", metav1.GetOptions{}); err != nil || held.GetDeletionTimestamp() == nil {
				return fmt.Sprintf("held is not being deleted: %v", err)
			}
			return ""
		})
		if _, err := s.widgets().Get(t.Context(), "owner", metav1.GetOptions{}); err != nil {
			t.Fatalf("the owner must wait for what it owns: %v", err)
		}
		if _, err := s.widgets().Patch(t.Context(), "held", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		s.gone("owner", "held")
	})
	t.Run("orphan", func(t *testing.T) {
		parent := s.make("parent", nil)
		s.make("child", nil, ownedBy(parent, false))
		s.remove("parent", metav1.DeletePropagationOrphan)
		s.gone("parent")
		child, err := s.widgets().Get(t.Context(), "child", metav1.GetOptions{})
		if err != nil || len(child.GetOwnerReferences()) != 0 {
			t.Fatalf("child is left with owners %v: %v", child.GetOwnerReferences(), err)
		}
	})
	t.Run("owner of another kind", func(t *testing.T) {
		cm, err := s.typed.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "base"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.make("built-on-it", nil, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: cm.Name, UID: cm.UID})
		if err := s.typed.CoreV1().ConfigMaps("default").Delete(t.Context(), "base", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.gone("base", "built-on-it")
	})
}

// TestNamespaceEnds deletes a namespace with widgets, of which one has a finalizer: the namespace says so, and ends when it is removed.
func TestNamespaceEnds(t *testing.T) {
	s := open(t, skifftest.WithControllers())
	if _, err := s.typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "stall"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	api := s.dynamic.Resource(widgets).Namespace("stall")
	for _, name := range []string{"plain", "held"} {
		w := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "shop.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name}}}
		if name == "held" {
			w.SetFinalizers([]string{"shop.example.com/hold"})
		}
		if _, err := api.Create(t.Context(), w, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.typed.CoreV1().Namespaces().Delete(t.Context(), "stall", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		ns, err := s.typed.CoreV1().Namespaces().Get(t.Context(), "stall", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range ns.Status.Conditions {
			if c.Type == corev1.NamespaceFinalizersRemaining && c.Status == corev1.ConditionTrue {
				if want := "Some content in the namespace has finalizers remaining: shop.example.com/hold in 1 resource instances"; c.Message != want {
					t.Fatalf("the namespace says %q, want %q", c.Message, want)
				}
				return ""
			}
		}
		return "the namespace does not say what it waits for"
	})
	if _, err := api.Patch(t.Context(), "held", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if _, err := s.typed.CoreV1().Namespaces().Get(t.Context(), "stall", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the namespace is still there: %v", err)
		}
		return ""
	})
}

// TestCounted has a quota of two widgets.
func TestCounted(t *testing.T) {
	s := open(t, skifftest.WithControllers())
	counted := corev1.ResourceName("count/widgets.shop.example.com")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("2")}}}
	if _, err := s.typed.CoreV1().ResourceQuotas("default").Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	used := func(want string) {
		t.Helper()
		eventually(t, func() string {
			q, err := s.typed.CoreV1().ResourceQuotas("default").Get(t.Context(), "few", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got, known := q.Status.Used[counted]; !known || got.String() != want {
				return fmt.Sprintf("used %v, want %s", q.Status.Used, want)
			}
			return ""
		})
	}
	used("0")
	s.make("one", nil)
	s.make("two", nil)
	used("2")
	w := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "shop.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "three"}}}
	_, err := s.widgets().Create(t.Context(), w, metav1.CreateOptions{})
	want := `widgets.shop.example.com "three" is forbidden: exceeded quota: few, requested: count/widgets.shop.example.com=1, used: count/widgets.shop.example.com=2, limited: count/widgets.shop.example.com=2`
	if !apierrors.IsForbidden(err) || err.Error() != want {
		t.Fatalf("the third widget was answered %v, want %s", err, want)
	}
	s.remove("one", metav1.DeletePropagationBackground)
	used("1")
	s.make("three", nil)
}
