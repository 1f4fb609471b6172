package webhook_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/webhook"
	"skiff/internal/apiserver/objects/objectstest"
)

// BenchmarkNoWebhooks asks the plugins whether they handle a request when there are no webhooks.
func BenchmarkNoWebhooks(b *testing.B) {
	o := webhook.Options{Store: objectstest.New()}
	plugins := []admission.Plugin{webhook.NewMutating(o), webhook.NewValidating(o)}
	a := admissiontest.Create(pod("p", nil))
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range plugins {
			if p.Handles(a) {
				b.Fatal("handled")
			}
		}
	}
}

// BenchmarkOtherWebhooks asks the plugin whether it handles a request when there are a thousand webhooks for other resources.
func BenchmarkOtherWebhooks(b *testing.B) {
	store := objectstest.New()
	for i := range 100 {
		configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}}
		for j := range 10 {
			configuration.Webhooks = append(configuration.Webhooks, validatingHook{Name: fmt.Sprintf("h%d.k8s.io", j), Rules: rules{rule("apps", "v1", "deployments")}})
		}
		store.Put(admissionregistrationv1.Resource("validatingwebhookconfigurations"), configuration)
	}
	p := webhook.NewValidating(webhook.Options{Store: store})
	a := admissiontest.Create(pod("p", nil))
	b.ReportAllocs()
	for b.Loop() {
		if p.Handles(a) {
			b.Fatal("handled")
		}
	}
}

// BenchmarkNoOp takes a pod through a webhook on loopback that allows everything, and prints the median.
func BenchmarkNoOp(b *testing.B) {
	hooks := newHookServer(b)
	hooks.raw("/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, uid, _ := strings.Cut(string(body[:200]), `"uid":"`)
		uid, _, _ = strings.Cut(uid, `"`)
		_, _ = io.WriteString(w, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"`+uid+`","allowed":true}}`)
	})
	c := &cluster{t: b, hooks: hooks}
	store := objectstest.New()
	h := validatingHook{ClientConfig: c.byURL("/"), Rules: rules{rule("", "v1", "pods")}, NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}}
	complete(&h.Name, &h.SideEffects, &h.AdmissionReviewVersions)
	store.Put(admissionregistrationv1.Resource("validatingwebhookconfigurations"), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Webhooks: []validatingHook{h}})
	p := webhook.NewValidating(webhook.Options{Store: store})
	a := admissiontest.Create(pod("p", map[string]string{"a": "b"}))
	a.Object.(*corev1.Pod).Namespace, a.Namespace = "default", "default"
	var times []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if err := p.Validate(b.Context(), a); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
}
