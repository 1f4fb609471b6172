package apiserver_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"skiff/internal/apiserver"
)

// TestWebhookCredentials has webhooks called with the credentials of the kubeconfig that the configuration of their admission plugin names.
func TestWebhookCredentials(t *testing.T) {
	var mu sync.Mutex
	tokens := map[string]string{} // of the webhooks that were called, by path
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			t.Error(err)
		}
		mu.Lock()
		tokens[r.URL.Path] = r.Header.Get("Authorization")
		mu.Unlock()
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(hook.Close)
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	for path, text := range map[string]string{
		kubeconfig: fmt.Sprintf(`{apiVersion: v1, kind: Config, users: [{name: %q, user: {token: secret}}]}`, strings.TrimPrefix(hook.URL, "https://")),
		filepath.Join(dir, "admission.yaml"): fmt.Sprintf(`{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugins: [{name: ValidatingAdmissionWebhook,
			configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %q}}]}`, kubeconfig),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, func(o *apiserver.Options) {
		o.AdmissionConfigFile = filepath.Join(dir, "admission.yaml")
		o.DisableAdmission = slices.DeleteFunc(slices.Clone(o.DisableAdmission), func(name string) bool { return strings.HasSuffix(name, "AdmissionWebhook") })
	})
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	for _, kind := range []string{"Validating", "Mutating"} {
		s.send("POST", "/apis/admissionregistration.k8s.io/v1/"+strings.ToLower(kind)+"webhookconfigurations", fmt.Sprintf(
			`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"%sWebhookConfiguration","metadata":{"name":"w"},"webhooks":[{"name":"w.example.com",
			"clientConfig":{"url":"%s/%s","caBundle":"%s"},"admissionReviewVersions":["v1"],"sideEffects":"None",
			"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]}]}`, kind, hook.URL, kind, ca)).ok()
	}
	s.eventually("called", func() bool {
		s.send("POST", "/api/v1/namespaces/default/configmaps?dryRun=All", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}`).ok()
		mu.Lock()
		defer mu.Unlock()
		return len(tokens) == 2
	})
	if tokens["/Validating"] != "Bearer secret" || tokens["/Mutating"] != "" {
		t.Errorf("called with %v", tokens)
	}
}
