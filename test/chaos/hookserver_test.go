//go:build linux

package chaos

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// hookServer is a server of admission webhooks in this process.
type hookServer struct {
	*httptest.Server
	t  *testing.T
	ca []byte
}

// newHookServer starts a server with a handler for each path.
func newHookServer(t *testing.T, handlers map[string]http.HandlerFunc) *hookServer {
	t.Helper()
	mux := http.NewServeMux()
	for path, handle := range handlers {
		mux.HandleFunc(path, handle)
	}
	s := &hookServer{t: t, Server: httptest.NewUnstartedServer(mux)}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that are killed cut their connections
	s.StartTLS()
	s.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// reviewed returns a handler that answers reviews by a function, which sets what is not the default: allowed.
func reviewed(decide func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		decide(review.Request, review.Response)
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // whoever asked may be gone
	}
}

// deny makes a response a refusal.
func deny(response *admissionv1.AdmissionResponse, why string) {
	response.Allowed, response.Result = false, &metav1.Status{Message: why, Code: http.StatusForbidden}
}

// jsonPatch makes a response a patch.
func jsonPatch(response *admissionv1.AdmissionResponse, patch string) {
	response.Patch, response.PatchType = []byte(patch), ptr.To(admissionv1.PatchTypeJSONPatch)
}

func (s *hookServer) client(path string) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{URL: ptr.To(s.URL + path), CABundle: bytes.Clone(s.ca)}
}

// validating returns a configuration with one webhook at a path, for the creation of objects of a resource. Edits change the webhook.
func (s *hookServer) validating(name, path, group, version, resource string, edits ...func(*admissionregistrationv1.ValidatingWebhook)) *admissionregistrationv1.ValidatingWebhookConfiguration {
	h := admissionregistrationv1.ValidatingWebhook{Name: name + ".chaos.skiff", ClientConfig: s.client(path), Rules: creations(group, version, resource), TimeoutSeconds: ptr.To[int32](30),
		SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}}
	for _, edit := range edits {
		edit(&h)
	}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.ValidatingWebhook{h}}
}

// mutating is as validating.
func (s *hookServer) mutating(name, path, group, version, resource string, edits ...func(*admissionregistrationv1.MutatingWebhook)) *admissionregistrationv1.MutatingWebhookConfiguration {
	h := admissionregistrationv1.MutatingWebhook{Name: name + ".chaos.skiff", ClientConfig: s.client(path), Rules: creations(group, version, resource), TimeoutSeconds: ptr.To[int32](30),
		SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}}
	for _, edit := range edits {
		edit(&h)
	}
	return &admissionregistrationv1.MutatingWebhookConfiguration{TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.MutatingWebhook{h}}
}

func creations(group, version, resource string) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}}}}
}

const (
	validatingPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	mutatingPath   = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
)
