package initializers

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Webhooks is what took the place of initializers: a webhook that changes pods, and one that checks Secrets.
type Webhooks struct {
	Failure admissionregistrationv1.FailurePolicyType
	server  *httptest.Server
}

// Start implements Way.
func (w *Webhooks) Start(t *testing.T, c *Cluster, within string) {
	t.Helper()
	w.server = httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) { c.review(out, r) }))
	t.Cleanup(w.server.Close)
	api := c.api(t).AdmissionregistrationV1()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.server.Certificate().Raw})
	rule := func(resource string) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}}}}
	}
	at := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{URL: ptr.To(w.server.URL + path), CABundle: ca}
	}
	namespaces := &metav1.LabelSelector{MatchLabels: map[string]string{Within: within}}
	none := ptr.To(admissionregistrationv1.SideEffectClassNone)
	hook := func(name, path, resource string, namespaces *metav1.LabelSelector) admissionregistrationv1.MutatingWebhook {
		return admissionregistrationv1.MutatingWebhook{Name: name, ClientConfig: at(path), Rules: rule(resource), FailurePolicy: &w.Failure, SideEffects: none,
			NamespaceSelector: namespaces, AdmissionReviewVersions: []string{"v1"}}
	}
	certified := namespaces.DeepCopy()
	certified.MatchLabels[certifiedLabel] = "yes"
	_, err := api.MutatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: within},
		Webhooks: []admissionregistrationv1.MutatingWebhook{hook("certificates.example.com", "/certificates", "pods", certified), hook("proxy.example.com", "/proxy", "pods", namespaces)}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = api.MutatingWebhookConfigurations().Delete(context.Background(), within, metav1.DeleteOptions{})
	})
	_, err = api.ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: within},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "secretlength.example.com", ClientConfig: at("/secret"), Rules: rule("secrets"), FailurePolicy: &w.Failure, SideEffects: none,
			NamespaceSelector: namespaces, AdmissionReviewVersions: []string{"v1"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = api.ValidatingWebhookConfigurations().Delete(context.Background(), within, metav1.DeleteOptions{})
	})
}

// Stop stops the webhooks' server, as if it had crashed.
func (w *Webhooks) Stop() { w.server.Close() }

// review answers a review.
func (c *Cluster) review(out http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	answer := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if err := c.answer(r.URL.Path, review.Request.Object.Raw, answer); err != nil {
		answer.Allowed, answer.Result = false, &metav1.Status{Message: err.Error()}
	}
	review.Request, review.Response = nil, answer
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(&review)
}

func (c *Cluster) answer(path string, object []byte, answer *admissionv1.AdmissionResponse) error {
	if path == "/secret" {
		s := &corev1.Secret{}
		if err := json.Unmarshal(object, s); err != nil {
			return err
		}
		if why := tooShort(s); why != "" {
			answer.Allowed, answer.Result = false, &metav1.Status{Message: why}
		}
		return nil
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(object, pod); err != nil {
		return err
	}
	if path == "/proxy" {
		c.inject(pod, false)
	} else {
		only := *pod
		only.Annotations, only.Spec.Containers = nil, append([]corev1.Container(nil), pod.Spec.Containers...)
		for i := range only.Spec.Containers {
			only.Spec.Containers[i].Ports = nil // so that it gets no proxy here
		}
		c.inject(&only, true)
		for i := range only.Spec.Containers {
			only.Spec.Containers[i].Ports = pod.Spec.Containers[i].Ports
		}
		pod.Spec = only.Spec
	}
	spec, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": pod.Spec}})
	answer.Patch, answer.PatchType = spec, ptr.To(admissionv1.PatchTypeJSONPatch)
	return err
}
