package apiserver_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver"
)

// TestConversionBegins: objects are converted by the webhook as soon as a definition names one that had none.
func TestConversionBegins(t *testing.T) {
	s, w := start(t), newConversionWebhook(t)
	s.define(endpointsDefinition(`{"strategy":"None"}`, "v1"))
	s.send("POST", spotsV1, spotV1("a", "h:1")).ok()
	if got := where(s.send("GET", spotsV2+"/a", nil)); got != "example.com/v2map[]" {
		t.Errorf("before there is a webhook: %s", got)
	}
	s.send("PATCH", definitions+"/spots.example.com", `{"spec":{"conversion":`+w.spec()+`}}`, "Content-Type", "application/merge-patch+json").ok()
	s.eventually("converted", func() bool { return strings.Contains(where(s.send("GET", spotsV2+"/a", nil)), "port") })
	if got := where(s.send("POST", spotsV2, spotV2("b", "h", "1"))); got != "example.com/v2map[host:h port:1]" {
		t.Errorf("created %s", got)
	}
	if stored := s.stored("b"); stored["apiVersion"] != "example.com/v1" || stored["spec"].(object)["hostPort"] != "h:1" {
		t.Errorf("stored %v", stored)
	}
}

// startAdmitting starts a server with the admission plugins that call webhooks and evaluate policies.
func startAdmitting(t testing.TB) *server {
	return start(t, func(o *apiserver.Options) {
		o.DisableAdmission = slices.DeleteFunc(slices.Clone(o.DisableAdmission), func(name string) bool {
			return strings.HasSuffix(name, "AdmissionWebhook") || strings.HasSuffix(name, "AdmissionPolicy")
		})
	})
}

// admissionWebhook is a webhook that notes the reviews that it gets, and answers each with a patch.
type admissionWebhook struct {
	*httptest.Server
	mu    sync.Mutex
	seen  []string // the specs of the object and the old object of each review, with the version
	patch string
}

func newAdmissionWebhook(t *testing.T, patch string) *admissionWebhook {
	w := &admissionWebhook{patch: patch}
	w.Server = httptest.NewTLSServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.Close)
	return w
}

func (w *admissionWebhook) serve(rw http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID               string
			Object, OldObject object
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	of := func(o object) string {
		if o == nil {
			return "none"
		}
		return fmt.Sprint(o["apiVersion"], o["spec"])
	}
	w.seen = append(w.seen, of(review.Request.OldObject)+" -> "+of(review.Request.Object))
	response := object{"uid": review.Request.UID, "allowed": true}
	if w.patch != "" {
		response["patchType"], response["patch"] = "JSONPatch", []byte(w.patch)
	}
	_ = json.NewEncoder(rw).Encode(object{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

// reviews returns what the webhook has seen since the last call.
func (w *admissionWebhook) reviews() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := strings.Join(w.seen, "\n")
	w.seen = nil
	return seen
}

// call has the server call the webhook for writes of spots in v1, and of those that are equivalent.
func (w *admissionWebhook) call(s *server, resource, kind string) {
	s.t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw})
	s.send("POST", "/apis/admissionregistration.k8s.io/v1/"+resource, object{"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": object{"name": "spots"},
		"webhooks": []any{object{"name": "spots.example.com", "sideEffects": "None", "admissionReviewVersions": []any{"v1"}, "clientConfig": object{"url": w.URL, "caBundle": ca},
			"rules": []any{object{"apiGroups": []any{"example.com"}, "apiVersions": []any{"v1"}, "resources": []any{"spots"}, "operations": []any{"*"}}}}}}).ok()
}

// TestAdmissionWebhooksOfAnotherVersion: webhooks for v1 get objects that are written in v2 as the conversion webhook makes them, and what they change is
// converted back.
func TestAdmissionWebhooksOfAnotherVersion(t *testing.T) {
	s, w := startAdmitting(t), newConversionWebhook(t)
	s.define(endpointsDefinition(w.spec(), "v1"))
	mutating, validating := newAdmissionWebhook(t, `[{"op": "replace", "path": "/spec/hostPort", "value": "changed:2"}]`), newAdmissionWebhook(t, "")
	mutating.call(s, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration")
	validating.call(s, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration")
	s.eventually("called", func() bool {
		s.send("POST", spotsV1+"?dryRun=All", spotV1("probe", "h:1")).ok()
		return mutating.reviews() != "" && validating.reviews() != ""
	})
	const v1, changed = "example.com/v1map[hostPort:h:1]", "example.com/v1map[hostPort:changed:2]"
	for _, c := range []struct {
		method, path        string
		body                any
		mutating, validated string
	}{
		{"POST", spotsV2, spotV2("a", "h", "1"), "none -> " + v1, "none -> " + changed},
		{"PUT", spotsV2 + "/a", spotV2("a", "h", "1"), changed + " -> " + v1, changed + " -> " + changed},
		{"PATCH", spotsV2 + "/a", `{"spec":{"host":"x"}}`, changed + " -> example.com/v1map[hostPort:x:2]", changed + " -> " + changed},
		{"DELETE", spotsV2 + "/a", nil, "", changed + " -> none"},
	} {
		if c.method == "DELETE" {
			s.send("DELETE", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/spots", nil).ok()
			s.eventually("not called", func() bool {
				s.send("POST", spotsV1+"?dryRun=All", spotV1("probe", "h:1")).ok()
				return mutating.reviews() == ""
			})
			validating.reviews()
		}
		if c.method == "PUT" {
			c.body.(object)["metadata"].(object)["resourceVersion"] = fmt.Sprint(s.send("GET", spotsV2+"/a", nil).ok().version())
		}
		got := s.send(c.method, c.path, c.body, "Content-Type", map[bool]string{true: "application/merge-patch+json", false: "application/json"}[c.method == "PATCH"]).ok()
		if spec := where(got); c.method != "DELETE" && spec != "example.com/v2map[host:changed port:2]" {
			t.Errorf("%s: answered %s", c.method, spec)
		}
		if seen := mutating.reviews(); seen != c.mutating {
			t.Errorf("%s: the mutating webhook got %s, want %s", c.method, seen, c.mutating)
		}
		if seen := validating.reviews(); seen != c.validated {
			t.Errorf("%s: the validating webhook got %s, want %s", c.method, seen, c.validated)
		}
	}
	w.down.Store(true)
	status := s.send("POST", spotsV2, spotV2("b", "h", "1")).refused(500, metav1.StatusReasonInternalError)
	if want := "Internal error occurred: conversion webhook for example.com/v2, Kind=Spot failed: an error on the server"; !strings.HasPrefix(status.Message, want) {
		t.Errorf("refused with %s, want %s", status.Message, want)
	}
}

// TestPoliciesOfAnotherVersion: policies for v1 see objects that are written in v2 as the conversion webhook makes them, and what they change is converted
// back.
func TestPoliciesOfAnotherVersion(t *testing.T) {
	s, w := startAdmitting(t), newConversionWebhook(t)
	s.define(endpointsDefinition(w.spec(), "v1"))
	for _, c := range []struct{ kind, spec string }{
		{"MutatingAdmissionPolicy", `"failurePolicy":"Fail","reinvocationPolicy":"Never","mutations":[
			{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'replace', path: '/spec/hostPort', value: object.spec.hostPort + '0'}]"}},
			{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{spec: Object.spec{replicas: object.spec.hostPort == 'h:10' ? 3 : 4}}"}}]`},
		{"ValidatingAdmissionPolicy", `"validations":[{"expression":"object.spec.hostPort == 'h:10' && (oldObject == null || oldObject.spec.hostPort == 'h:10')","messageExpression":"string(object.spec.hostPort)"}]`},
	} {
		plural, name := strings.ToLower(strings.TrimSuffix(c.kind, "y"))+"ies", `"metadata":{"name":"spots"}`
		s.send("POST", "/apis/admissionregistration.k8s.io/v1/"+plural, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"`+c.kind+`",`+name+`,"spec":{"matchConstraints":{"resourceRules":[
			{"apiGroups":["example.com"],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["spots"]}]},`+c.spec+`}}`).ok()
		actions := map[bool]string{true: `,"validationActions":["Deny"]`}[c.kind == "ValidatingAdmissionPolicy"]
		s.send("POST", "/apis/admissionregistration.k8s.io/v1/"+plural[:len(plural)-3]+"ybindings", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"`+c.kind+`Binding",`+name+
			`,"spec":{"policyName":"spots"`+actions+`}}`).ok()
	}
	s.eventually("in force", func() bool {
		return s.send("POST", spotsV1+"?dryRun=All", spotV1("probe", "x:1")).Code == 422 &&
			strings.Contains(string(s.send("POST", spotsV1+"?dryRun=All", spotV1("probe", "h:1")).Body), "h:10")
	})
	if got := where(s.send("POST", spotsV2, spotV2("a", "h", "1"))); got != "example.com/v2map[host:h port:10 replicas:3]" {
		t.Errorf("created %s", got)
	}
	status := s.send("PATCH", spotsV2+"/a", `{"spec":{"host":"x"}}`, "Content-Type", "application/merge-patch+json").refused(422, metav1.StatusReasonInvalid)
	if !strings.HasSuffix(status.Message, "denied request: x:100") {
		t.Errorf("refused with %s", status.Message)
	}
}

// TestManagedFieldsOfTwoVersions: fields that were set in v1 have the same owner when they are changed in v2.
func TestManagedFieldsOfTwoVersions(t *testing.T) {
	s, w := start(t), newConversionWebhook(t)
	s.define(endpointsDefinition(w.spec(), "v1"))
	apply := func(path, manager string, body object) answer {
		t.Helper()
		return s.send("PATCH", path+"/a?fieldManager="+manager, body, "Content-Type", "application/apply-patch+yaml")
	}
	apply(spotsV1, "one", spotV1("a", "h:1")).ok()
	counted := spotV2("a", "h", "1")
	counted["spec"] = object{"replicas": 2}
	if got := where(apply(spotsV2, "two", counted)); got != "example.com/v2map[host:h port:1 replicas:2]" {
		t.Errorf("applied %s", got)
	}
	status := apply(spotsV2, "two", spotV2("a", "other", "1")).refused(409, metav1.StatusReasonConflict)
	if !strings.Contains(status.Message, `conflict with "one": .spec.hostPort`) {
		t.Errorf("refused with %s", status.Message)
	}
	s.send("PATCH", spotsV2+"/a?fieldManager=three", `{"spec":{"host":"other"}}`, "Content-Type", "application/merge-patch+json").ok()
	owners := func() (found []string) {
		for _, e := range into[metav1.PartialObjectMetadata](s.send("GET", spotsV1+"/a", nil).ok()).ManagedFields {
			found = append(found, fmt.Sprint(e.Manager, " ", e.APIVersion, " ", e.FieldsV1))
		}
		return found
	}
	want := []string{`two example.com/v2 {"f:spec":{"f:replicas":{}}}`, `three example.com/v2 {"f:spec":{"f:host":{}}}`}
	if got := owners(); !slices.Equal(got, want) {
		t.Errorf("owned by %q, want %q", got, want)
	}
}
