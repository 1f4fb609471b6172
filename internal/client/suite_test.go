package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/apiserver/authz"
	"skiff/internal/client"
	"skiff/internal/journey"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

func configMap(name string, data ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": "suite"}}, Data: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		cm.Data[data[i]] = data[i+1]
	}
	return cm
}

// events reads the given number of events from a watch, as "TYPE name value".
func events(t *testing.T, w watch.Interface, n int) (got []string) {
	t.Helper()
	for range n {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatalf("the watch ended after %v", got)
			}
			got = append(got, string(e.Type)+" "+describe(t, e.Object))
		case <-t.Context().Done():
			t.Fatalf("nothing after %v", got)
		}
	}
	return got
}

func describe(t *testing.T, obj runtime.Object) string {
	t.Helper()
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		return o.Name + " " + o.Data["k"]
	case *unstructured.Unstructured:
		value, _, err := unstructured.NestedString(o.Object, "data", "k")
		if err != nil {
			t.Fatal(err)
		}
		return o.GetName() + " " + value
	case *metav1.PartialObjectMetadata:
		return o.Name + " " + o.Annotations["k"]
	default:
		t.Fatalf("unexpected %T: %v", obj, obj)
		return ""
	}
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestTyped(t *testing.T) {
	eachWay(t, func(t *testing.T, c *client.Client, _ *requests) {
		ctx, maps, ok := t.Context(), c.Kubernetes().CoreV1().ConfigMaps("default"), must[*corev1.ConfigMap](t)
		ok(maps.Create(ctx, configMap("old"), metav1.CreateOptions{}))
		list := must[*corev1.ConfigMapList](t)(maps.List(ctx, metav1.ListOptions{LabelSelector: "app=suite"}))
		if len(list.Items) != 1 || list.Items[0].Name != "old" {
			t.Fatalf("listed %v", list.Items)
		}
		w := must[watch.Interface](t)(maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, LabelSelector: "app=suite"}))

		one := ok(maps.Create(ctx, configMap("one", "k", "created"), metav1.CreateOptions{}))
		if got := ok(maps.Get(ctx, "one", metav1.GetOptions{})); got.UID != one.UID || got.ResourceVersion != one.ResourceVersion {
			t.Errorf("got %v, created %v", got, one)
		}
		one.Data["k"] = "updated"
		ok(maps.Update(ctx, one, metav1.UpdateOptions{}))
		ok(maps.Patch(ctx, "one", types.JSONPatchType, []byte(`[{"op":"replace","path":"/data/k","value":"json"}]`), metav1.PatchOptions{}))
		ok(maps.Patch(ctx, "one", types.MergePatchType, []byte(`{"data":{"k":"merge"}}`), metav1.PatchOptions{}))
		ok(maps.Patch(ctx, "one", types.StrategicMergePatchType, []byte(`{"data":{"k":"strategic"}}`), metav1.PatchOptions{}))
		ok(maps.Apply(ctx, applycorev1.ConfigMap("one", "default").WithData(map[string]string{"k": "applied"}), metav1.ApplyOptions{FieldManager: "applier", Force: true}))
		if err := maps.Delete(ctx, "one", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(one.UID))}); err != nil {
			t.Error(err)
		}
		if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=suite"}); err != nil {
			t.Error(err)
		}
		expect(t, events(t, w, 8), "ADDED one created", "MODIFIED one updated", "MODIFIED one json", "MODIFIED one merge", "MODIFIED one strategic",
			"MODIFIED one applied", "DELETED one applied", "DELETED old ")
		w.Stop()
		for range w.ResultChan() { // closed once it is over
		}
	})
}

func TestSubresources(t *testing.T) {
	eachWay(t, func(t *testing.T, c *client.Client, _ *requests) {
		ctx, pods := t.Context(), c.Kubernetes().CoreV1().Pods("default")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		pod = must[*corev1.Pod](t)(pods.Create(ctx, pod, metav1.CreateOptions{}))
		pod.Status.Phase = corev1.PodRunning
		pod = must[*corev1.Pod](t)(pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}))
		if pod.Status.Phase != corev1.PodRunning {
			t.Errorf("the phase is %s", pod.Status.Phase)
		}
	})
}

func TestErrors(t *testing.T) {
	var ways []string
	eachWay(t, func(t *testing.T, c *client.Client, seen *requests) {
		seen.refuseIf(func(a *authz.Attributes) bool { return a.Plural == "secrets" })
		ctx, maps := t.Context(), c.Kubernetes().CoreV1().ConfigMaps("default")
		if _, err := maps.Create(ctx, configMap("there"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		stale := configMap("there")
		stale.ResourceVersion = "1"
		_, exists := maps.Create(ctx, configMap("there"), metav1.CreateOptions{})
		_, conflict := maps.Update(ctx, stale, metav1.UpdateOptions{})
		_, missing := maps.Get(ctx, "missing", metav1.GetOptions{})
		_, invalid := maps.Create(ctx, configMap("Not_A_Name"), metav1.CreateOptions{})
		_, forbidden := c.Kubernetes().CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
		_, tooOld := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: "nonsense"})
		var got string
		for _, err := range []error{exists, conflict, missing, invalid, forbidden, tooOld} {
			status, ok := err.(apierrors.APIStatus)
			if !ok {
				t.Fatalf("%v is not a status", err)
			}
			s, err := json.Marshal(status.Status())
			if err != nil {
				t.Fatal(err)
			}
			got += string(s) + "\n"
		}
		ways = append(ways, got)
	})
	if ways[0] != ways[1] {
		t.Errorf("over HTTPS:\n%s\nin process:\n%s", ways[0], ways[1])
	}
}

func TestDynamic(t *testing.T) {
	eachWay(t, func(t *testing.T, c *client.Client, _ *requests) {
		ctx, maps, ok := t.Context(), c.Dynamic().Resource(configMaps).Namespace("default"), must[*unstructured.Unstructured](t)
		w := must[watch.Interface](t)(maps.Watch(ctx, metav1.ListOptions{LabelSelector: "app=suite"}))
		defer w.Stop()
		one := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": "one", "labels": map[string]any{"app": "suite"}}, "data": map[string]any{"k": "created"}}}
		one = ok(maps.Create(ctx, one, metav1.CreateOptions{}))
		if err := unstructured.SetNestedField(one.Object, "updated", "data", "k"); err != nil {
			t.Fatal(err)
		}
		ok(maps.Update(ctx, one, metav1.UpdateOptions{}))
		ok(maps.Patch(ctx, "one", types.MergePatchType, []byte(`{"data":{"k":"patched"}}`), metav1.PatchOptions{}))
		if got := ok(maps.Get(ctx, "one", metav1.GetOptions{})); got.GetKind() != "ConfigMap" || describe(t, got) != "one patched" {
			t.Errorf("got %v", got)
		}
		list := must[*unstructured.UnstructuredList](t)(maps.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=one"}))
		if len(list.Items) != 1 || list.Items[0].GetKind() != "ConfigMap" {
			t.Errorf("listed %v", list.Items)
		}
		if err := maps.Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		expect(t, events(t, w, 4), "ADDED one created", "MODIFIED one updated", "MODIFIED one patched", "DELETED one patched")
	})
}

func TestMetadata(t *testing.T) {
	eachWay(t, func(t *testing.T, c *client.Client, _ *requests) {
		ctx, maps, ok := t.Context(), c.Metadata().Resource(configMaps).Namespace("default"), must[*metav1.PartialObjectMetadata](t)
		must[*corev1.ConfigMap](t)(c.Kubernetes().CoreV1().ConfigMaps("default").Create(ctx, configMap("one"), metav1.CreateOptions{}))
		list := must[*metav1.PartialObjectMetadataList](t)(maps.List(ctx, metav1.ListOptions{LabelSelector: "app=suite"}))
		if len(list.Items) != 1 || list.Items[0].Name != "one" {
			t.Fatalf("listed %v", list.Items)
		}
		w := must[watch.Interface](t)(maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion}))
		defer w.Stop()
		ok(maps.Patch(ctx, "one", types.MergePatchType, []byte(`{"metadata":{"annotations":{"k":"patched"}}}`), metav1.PatchOptions{}))
		if got := ok(maps.Get(ctx, "one", metav1.GetOptions{})); describe(t, got) != "one patched" {
			t.Errorf("got %v", got)
		}
		if err := maps.Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		expect(t, events(t, w, 2), "MODIFIED one patched", "DELETED one patched")
	})
}

// TestInformers checks that typed, dynamic and metadata informers observe the same changes.
func TestInformers(t *testing.T) {
	eachWay(t, func(t *testing.T, c *client.Client, _ *requests) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ok, maps := must[*corev1.ConfigMap](t), c.Kubernetes().CoreV1().ConfigMaps("default")
		old := configMap("old", "k", "before")
		old.Annotations = map[string]string{"k": "before"}
		ok(maps.Create(ctx, old, metav1.CreateOptions{}))
		ok(c.Kubernetes().CoreV1().ConfigMaps("kube-system").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}, metav1.CreateOptions{}))

		options := client.InformerOptions{Namespace: "default", Select: func(o *metav1.ListOptions) { o.LabelSelector = "app=suite" }}
		typed, dynamic, meta := c.Informers(options), c.DynamicInformers(options), c.MetadataInformers(options)
		informers := map[string]cache.SharedIndexInformer{
			"typed": typed.Core().V1().ConfigMaps().Informer(), "dynamic": dynamic.ForResource(configMaps).Informer(), "metadata": meta.ForResource(configMaps).Informer(),
		}
		seen := map[string]chan string{}
		for name, informer := range informers {
			events := make(chan string, 100)
			seen[name] = events
			must[cache.ResourceEventHandlerRegistration](t)(informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
				AddFunc: func(obj any, initial bool) {
					events <- fmt.Sprintf("add %s initial=%t", describe(t, obj.(runtime.Object)), initial)
				},
				UpdateFunc: func(old, obj any) {
					events <- fmt.Sprintf("update %s -> %s", describe(t, old.(runtime.Object)), describe(t, obj.(runtime.Object)))
				},
				DeleteFunc: func(obj any) { events <- "delete " + describe(t, obj.(runtime.Object)) },
			}))
		}
		typed.Start(ctx.Done())
		dynamic.Start(ctx.Done())
		meta.Start(ctx.Done())
		for name, informer := range informers {
			if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				t.Fatalf("%s: not synced", name)
			}
		}
		one := configMap("one", "k", "1")
		one.Annotations = map[string]string{"k": "1"}
		one = ok(maps.Create(ctx, one, metav1.CreateOptions{}))
		one.Data["k"], one.Annotations["k"] = "2", "2"
		one = ok(maps.Update(ctx, one, metav1.UpdateOptions{}))
		one.Labels = map[string]string{"app": "other"}
		ok(maps.Update(ctx, one, metav1.UpdateOptions{}))
		if err := maps.Delete(ctx, "old", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for name, events := range seen {
			var got []string
			for range 5 {
				got = append(got, <-events)
			}
			t.Log(name)
			expect(t, got, "add old before initial=true", "add one 1 initial=false", "update one 1 -> one 2", "delete one 2", "delete old before")
			byNamespace := must[[]any](t)(informers[name].GetIndexer().ByIndex(cache.NamespaceIndex, "default"))
			if len(byNamespace) != 0 {
				t.Errorf("left in the index: %v", byNamespace)
			}
		}
		cancel()
		typed.Shutdown()
		dynamic.Shutdown()
		meta.Shutdown()
	})
}

// TestInformerForResource takes informers by resource, of a namespaced kind and of one that is not, and asks their listers.
func TestInformerForResource(t *testing.T) {
	eachWay(t, func(t *testing.T, c *client.Client, _ *requests) {
		ctx, cancel := context.WithCancel(t.Context())
		must[*corev1.ConfigMap](t)(c.Kubernetes().CoreV1().ConfigMaps("default").Create(ctx, configMap("one"), metav1.CreateOptions{}))
		factory := c.Informers(client.InformerOptions{Namespace: "default"})
		defer factory.Shutdown()
		defer cancel()
		for resource, name := range map[schema.GroupVersionResource]string{configMaps: "one", namespaces: "kube-system"} {
			informer, err := factory.ForResource(resource)
			if err != nil {
				t.Fatal(err)
			}
			informer.Informer()
			factory.Start(ctx.Done())
			if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
				t.Fatal(err)
			}
			lister := informer.Lister()
			get := lister.Get
			if resource == configMaps {
				get = lister.ByNamespace("default").Get
			}
			if _, err := get(name); err != nil {
				t.Errorf("%v %s: %v", resource, name, err)
			}
		}
		if typed := factory.Core().V1().ConfigMaps(); len(typed.Informer().GetStore().ListKeys()) != 1 {
			t.Errorf("the typed informer is another than the one by resource: %v", typed.Informer().GetStore().ListKeys())
		}
	})
}

// TestInformerAuthorization checks that informers observe no more than their component is authorized for.
func TestInformerAuthorization(t *testing.T) {
	eachWay(t, func(t *testing.T, c *client.Client, seen *requests) {
		seen.refuseIf(func(a *authz.Attributes) bool {
			return a.Plural == "secrets" && a.User.Username == userName && (a.Verb == "list" || a.Verb == "watch")
		})
		ctx, cancel := context.WithCancel(t.Context())
		factory := c.Informers(client.InformerOptions{})
		informer := factory.Core().V1().Secrets().Informer()
		failed := make(chan error, 10)
		if err := informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { failed <- err }); err != nil {
			t.Fatal(err)
		}
		factory.Start(ctx.Done())
		err := <-failed
		if want := `secrets is forbidden: User "system:tester" cannot list resource "secrets" in API group "" at the cluster scope: it is a secret`; !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\nwant %v", err, want)
		}
		if informer.HasSynced() {
			t.Error("it has synced")
		}
		cancel()
		factory.Shutdown()
	})
}

// TestIdentity creates an object in which the server records the user that created it.
func TestIdentity(t *testing.T) {
	eachWay(t, func(t *testing.T, c *client.Client, _ *requests) {
		request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "who"},
			Spec: certificatesv1.CertificateSigningRequestSpec{Request: signingRequest(t), SignerName: "example.com/signer", Usages: []certificatesv1.KeyUsage{"client auth"}}}
		made := must[*certificatesv1.CertificateSigningRequest](t)(c.Kubernetes().CertificatesV1().CertificateSigningRequests().Create(t.Context(), request, metav1.CreateOptions{}))
		expect(t, []string{made.Spec.Username}, userName)
		expect(t, sorted(made.Spec.Groups), "system:authenticated", groupName)
		cm := must[*corev1.ConfigMap](t)(c.Kubernetes().CoreV1().ConfigMaps("default").Create(t.Context(), configMap("one"), metav1.CreateOptions{}))
		expect(t, []string{cm.ManagedFields[0].Manager}, component)
	})
}

func TestCause(t *testing.T) {
	eachWay(t, func(t *testing.T, c *client.Client, seen *requests) {
		get := must[*corev1.Namespace](t)
		cause := get(c.Kubernetes().CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}))
		if h := seen.last()[journey.HeaderCause]; h != nil {
			t.Errorf("a request without a cause has %v", h)
		}
		because := client.Because(t.Context(), cause)
		check := func(err error, want ...metav1.Object) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			told, err := journey.ParseCauses(seen.last().Get(journey.HeaderCause))
			if err != nil {
				t.Fatal(err)
			}
			var got, causes []string
			for _, c := range told {
				got = append(got, c.String())
			}
			for _, o := range want {
				causes = append(causes, string(o.GetUID())+"@"+o.GetResourceVersion())
			}
			expect(t, got, causes...)
		}
		_, err := c.Kubernetes().CoreV1().ConfigMaps("default").Create(because, configMap("one"), metav1.CreateOptions{})
		check(err, cause)
		_, err = c.Dynamic().Resource(configMaps).Namespace("default").Patch(because, "one", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
		check(err, cause)
		check(c.Metadata().Resource(configMaps).Namespace("default").Delete(because, "one", metav1.DeleteOptions{}), cause)

		// Several causes, each once, and no more than are kept.
		second := get(c.Kubernetes().CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{}))
		_, err = c.Kubernetes().CoreV1().ConfigMaps("default").List(client.Because(client.Because(because, second), cause), metav1.ListOptions{})
		check(err, cause, second)
		many, all := t.Context(), []metav1.Object{}
		for i := range journey.MaxCauses + 2 {
			all = append(all, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprintf("uid-%d", i)), ResourceVersion: "7"}})
			many = client.Because(many, all[i])
		}
		_, err = c.Kubernetes().CoreV1().ConfigMaps("default").List(many, metav1.ListOptions{})
		check(err, all[:journey.MaxCauses]...)
		if client.Because(t.Context(), &corev1.Pod{}) != t.Context() {
			t.Error("an object that is not in the API was taken for a cause")
		}
	})
}

func TestRecorder(t *testing.T) {
	eachWay(t, func(t *testing.T, c *client.Client, _ *requests) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		about := must[*corev1.Namespace](t)(c.Kubernetes().CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}))
		recorder := c.Recorder(ctx)
		recorder.Event(about, corev1.EventTypeNormal, "Noticed", "it is there")
		eventually(t, "the event is in the API", func() bool {
			list := must[*corev1.EventList](t)(c.Kubernetes().CoreV1().Events("default").List(ctx, metav1.ListOptions{}))
			return len(list.Items) == 1 && list.Items[0].Source.Component == component && list.Items[0].InvolvedObject.UID == about.UID && list.Items[0].Reason == "Noticed"
		})
	})
}

// TestCancel ends a watch by its context.
func TestCancel(t *testing.T) {
	eachWay(t, func(t *testing.T, c *client.Client, _ *requests) {
		ctx, cancel := context.WithCancel(t.Context())
		w := must[watch.Interface](t)(c.Kubernetes().CoreV1().ConfigMaps("").Watch(ctx, metav1.ListOptions{}))
		cancel()
		for range w.ResultChan() {
		}
		if _, err := c.Kubernetes().CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{}); err == nil {
			t.Error("a cancelled request was answered")
		}
	})
}

func signingRequest(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "who"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
