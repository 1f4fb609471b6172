package webhook_test

import (
	"flag"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver"
	"skiff/internal/apitest"
)

// user returns a client of somebody who may do everything in the namespace default, and is served by the seats of everybody.
func (c *cluster) user(name string) kubernetes.Interface {
	c.t.Helper()
	_, err := c.api.RbacV1().RoleBindings("default").Create(c.t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
		RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", APIGroup: rbacv1.GroupName, Name: "cluster-admin"}}, metav1.CreateOptions{})
	c.must(err)
	config := c.ConfigFor(name)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	c.must(err)
	return client
}

// TestRecursionTakesSeats: a webhook that writes what it is asked about takes every seat that its user has. Others have theirs, everybody who waits is answered,
// and when the configuration is gone, so is the recursion.
func TestRecursionTakesSeats(t *testing.T) {
	c := newCluster(t, apitest.WithServer(func(o *apiserver.Options) { o.MaxInFlight, o.MaxMutatingInFlight = 20, 10 }))
	recursive, modest := c.user("recursive"), c.user("modest")
	var under, calls atomic.Int64
	c.hooks.review("/recurse", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		calls.Add(1)
		under.Add(1)
		defer under.Add(-1)
		if _, err := recursive.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"}}, metav1.CreateOptions{}); err != nil {
			return deny("recursion")(r)
		}
		return allow(r)
	})
	before := runtime.NumGoroutine()
	c.validating("recurse", validatingHook{Name: "recurse.k8s.io", ClientConfig: c.byService("/recurse"), Rules: rules{rule("", "v1", "secrets", "CREATE")}, TimeoutSeconds: ptr.To[int32](1)})
	const writers = 10
	ended := make(chan error, writers)
	for i := range writers {
		go func() {
			_, err := recursive.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("w", i)}}, metav1.CreateOptions{})
			ended <- err
		}()
	}
	c.eventually(func() bool { return calls.Load() > 0 })
	for i := range 5 {
		start := time.Now()
		_, err := modest.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(fmt.Sprint("m", i), nil), metav1.CreateOptions{})
		c.must(err)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("another user waited for %v", took)
		}
	}
	for range writers {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("a write succeeded that recurses without end")
			}
		case <-time.After(time.Minute):
			t.Fatal("a write that recurses is not answered")
		}
	}
	c.must(c.api.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), "recurse", metav1.DeleteOptions{}))
	c.eventually(func() bool { return under.Load() == 0 })
	_, err := recursive.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "after"}}, metav1.CreateOptions{})
	c.must(err)
	c.eventually(func() bool { open, _ := c.hooks.connections(); return open == 0 })
	c.eventually(func() bool { return runtime.NumGoroutine() <= before+10 })
}

var reviewsInFlight = flag.Int("reviews", 400, "reviews of TestReviewsInFlight that are in flight at once")

// TestReviewsInFlight: while a webhook hangs, many writes wait for it: over a bounded number of connections, and with little memory for each. When it answers,
// all of them are done, and nothing is left of them.
func TestReviewsInFlight(t *testing.T) {
	c := newCluster(t)
	const connections, perReview = 256, 100 << 10
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	var waiting atomic.Int64
	c.hooks.review("/hang", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		waiting.Add(1)
		<-released
		return allow(r)
	})
	t.Cleanup(release)
	in := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceDefault}}
	before := runtime.NumGoroutine()
	c.validating("hang", validatingHook{Name: "hang.k8s.io", ClientConfig: c.byURL("/hang"), Rules: rules{rule("", "v1", "configmaps", "CREATE")}, TimeoutSeconds: ptr.To[int32](30), NamespaceSelector: in})
	maps := c.InProcess("storm", "admin", "system:masters").Kubernetes().CoreV1().ConfigMaps(metav1.NamespaceDefault)
	heapBefore := heap()
	ended := make(chan error, *reviewsInFlight)
	for i := range *reviewsInFlight {
		go func() {
			_, err := maps.Create(t.Context(), configMap(fmt.Sprint("m", i), map[string]string{"k": strings.Repeat("v", 1000)}), metav1.CreateOptions{})
			ended <- err
		}()
	}
	for deadline := time.Now().Add(25 * time.Second); waiting.Load() < int64(min(connections, *reviewsInFlight)); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) { // which leaves them time to be answered
			t.Fatalf("%d reviews wait in the webhook", waiting.Load())
		}
	}
	if each := (heap() - heapBefore) / int64(*reviewsInFlight); each > perReview {
		t.Errorf("a review in flight takes %d bytes of memory", each)
	}
	if open, _ := c.hooks.connections(); open > connections+1 {
		t.Errorf("%d connections are open", open)
	}
	release()
	for range *reviewsInFlight {
		c.must(<-ended)
	}
	c.must(c.api.AdmissionregistrationV1().ValidatingWebhookConfigurations().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	c.eventually(func() bool { open, _ := c.hooks.connections(); return open == 0 })
	c.eventually(func() bool { return runtime.NumGoroutine() <= before+10 })
}

// heap returns how much memory is in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestGrowingPatches: webhooks that make an object larger than any client may send are the server's trouble, and not the store's.
func TestGrowingPatches(t *testing.T) {
	c := newCluster(t)
	var hooks []mutatingHook
	for i := range 4 {
		path := fmt.Sprint("/grow", i)
		c.hooks.review(path, patch(fmt.Sprintf(`[{"op":"add","path":"/data/k%d","value":%q}]`, i, strings.Repeat("v", 2<<20))))
		hooks = append(hooks, mutatingHook{Name: fmt.Sprintf("grow%d.k8s.io", i), ClientConfig: c.byURL(path), Rules: rules{rule("", "v1", "secrets", "CREATE"), rule("", "v1", "configmaps", "CREATE")},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceDefault}}})
	}
	c.mutating("grow", hooks...)
	_, err := c.api.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("m", map[string]string{"k": "v"}), metav1.CreateOptions{})
	if status, ok := err.(apierrors.APIStatus); !ok || status.Status().Code < http.StatusBadRequest {
		t.Errorf("an object of 8 MB: %v", err)
	}
	if _, err := c.api.CoreV1().ConfigMaps("default").Get(t.Context(), "m", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is there: %v", err)
	}
}
