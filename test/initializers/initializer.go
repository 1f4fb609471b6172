package initializers

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// PodConfiguration is the InitializerConfiguration that the guide prints.
const PodConfiguration = `apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata:
  name: custom-pod-initializer
initializers:
  - name: podimage.example.com
    rules:
      - apiGroups:
          - ""
        apiVersions:
          - v1
        resources:
          - pods
`

const secretConfiguration = `apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata:
  name: secret-length
initializers:
  - name: secretlength.example.com
    rules:
      - apiGroups: [""]
        apiVersions: [v1]
        resources: [secrets]
`

const (
	podInitializer    = "podimage.example.com"
	secretInitializer = "secretlength.example.com"
)

var (
	configurations = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1alpha1", Resource: "initializerconfigurations"}
	podsResource   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	secretResource = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// includeUninitialized adds the parameter that shows objects which are not initialized: today's client-go has no option for it.
type includeUninitialized struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (i includeUninitialized) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	query := r.URL.Query()
	query.Set("includeUninitialized", "true")
	r.URL.RawQuery = query.Encode()
	return i.RoundTripper.RoundTrip(r)
}

// Initializers is the way of the guide: two InitializerConfigurations, and a controller that acts on what is pending.
type Initializers struct {
	mu      sync.Mutex
	stopped func() // stops the controller
}

// Start implements Way. Initializers cannot choose namespaces.
func (w *Initializers) Start(t *testing.T, c *Cluster, _ string) {
	t.Helper()
	w.Configure(t, c, PodConfiguration)
	w.Configure(t, c, secretConfiguration)
	w.Run(t, c)
}

// Configure creates an InitializerConfiguration, which is deleted when the test ends.
func (w *Initializers) Configure(t *testing.T, c *Cluster, text string) {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
		t.Fatal(err)
	}
	api := c.dynamic(t, c.Config).Resource(configurations)
	if _, err := api.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Delete(context.Background(), obj.GetName(), metav1.DeleteOptions{}) })
}

// Run runs the controller until the test ends, or Stop is called.
func (w *Initializers) Run(t *testing.T, c *Cluster) {
	t.Helper()
	config := rest.CopyConfig(c.Config)
	config.QPS, config.Burst = 500, 500
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return includeUninitialized{next} })
	controller := &controller{cluster: c, api: c.dynamic(t, config)}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	for resource, initialize := range map[schema.GroupVersionResource]func(context.Context, *unstructured.Unstructured) error{podsResource: controller.pod, secretResource: controller.secret} {
		done.Go(func() { controller.follow(ctx, resource, initialize) })
	}
	stop := sync.OnceFunc(func() {
		cancel()
		done.Wait()
	})
	w.mu.Lock()
	w.stopped = stop
	w.mu.Unlock()
	t.Cleanup(stop)
}

// Stop stops the controller, as if it had crashed.
func (w *Initializers) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped()
}

// controller is the controller of both initializers.
type controller struct {
	cluster *Cluster
	api     dynamic.Interface
}

// follow initializes all objects of a resource, those there are and those that come, until ctx ends.
func (c *controller) follow(ctx context.Context, resource schema.GroupVersionResource, initialize func(context.Context, *unstructured.Unstructured) error) {
	for ctx.Err() == nil {
		if err := c.once(ctx, resource, initialize); err != nil {
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

func (c *controller) once(ctx context.Context, resource schema.GroupVersionResource, initialize func(context.Context, *unstructured.Unstructured) error) error {
	list, err := c.api.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		_ = initialize(ctx, &list.Items[i]) // another version of the object comes, or another try
	}
	watch, err := c.api.Resource(resource).Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		return err
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		obj, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == "DELETED" {
			continue
		}
		_ = initialize(ctx, obj)
	}
	return context.Canceled
}

// pending returns the names of the initializers that an object waits for.
func pending(obj *unstructured.Unstructured) (names []string) {
	list, _, _ := unstructured.NestedSlice(obj.Object, "metadata", "initializers", "pending")
	for _, p := range list {
		if entry, ok := p.(map[string]any); ok {
			name, _ := entry["name"].(string)
			names = append(names, name)
		}
	}
	return names
}

// done removes the first pending initializer of an object.
func done(obj *unstructured.Unstructured) error {
	list, _, err := unstructured.NestedSlice(obj.Object, "metadata", "initializers", "pending")
	if err != nil {
		return err
	}
	return unstructured.SetNestedSlice(obj.Object, list[1:], "metadata", "initializers", "pending")
}

// pod is the initializer of pods.
func (c *controller) pod(ctx context.Context, obj *unstructured.Unstructured) error {
	if names := pending(obj); len(names) == 0 || names[0] != podInitializer {
		return nil
	}
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, pod); err != nil {
		return err
	}
	namespace, err := c.api.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(ctx, pod.Namespace, metav1.GetOptions{})
	if err != nil {
		return err
	}
	c.cluster.inject(pod, namespace.GetLabels()[certifiedLabel] != "")
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod.Spec)
	if err != nil {
		return err
	}
	obj.Object["spec"] = spec
	if err := done(obj); err != nil {
		return err
	}
	_, err = c.api.Resource(podsResource).Namespace(obj.GetNamespace()).Update(ctx, obj, metav1.UpdateOptions{})
	return err
}

// secret is the initializer of Secrets.
func (c *controller) secret(ctx context.Context, obj *unstructured.Unstructured) error {
	if names := pending(obj); len(names) == 0 || names[0] != secretInitializer {
		return nil
	}
	s := &corev1.Secret{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, s); err != nil {
		return err
	}
	if why := tooShort(s); why != "" && s.Type == corev1.SecretTypeOpaque {
		result := map[string]any{"status": "Failure", "reason": "Invalid", "code": int64(http.StatusUnprocessableEntity), "message": why}
		if err := unstructured.SetNestedMap(obj.Object, result, "metadata", "initializers", "result"); err != nil {
			return err
		}
	} else if err := done(obj); err != nil {
		return err
	}
	_, err := c.api.Resource(secretResource).Namespace(obj.GetNamespace()).Update(ctx, obj, metav1.UpdateOptions{})
	return err
}
