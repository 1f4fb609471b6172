package why

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/journey"
)

// convert answers a review of conversion: the versions differ in nothing but their name.
func convert(w http.ResponseWriter, r *http.Request) {
	var review struct {
		APIVersion, Kind string
		Request          struct {
			UID               string
			DesiredAPIVersion string
			Objects           []map[string]any
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, o := range review.Request.Objects {
		o["apiVersion"] = review.Request.DesiredAPIVersion
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": review.APIVersion, "kind": review.Kind,
		"response": map[string]any{"uid": review.Request.UID, "convertedObjects": review.Request.Objects, "result": map[string]any{"status": "Success"}}})
}

// drawn returns the lines of an object's journey that are calls within requests, without times.
func (f *fixture) drawn(kind, name string) (lines []string) {
	f.Helper()
	tree, _, err := f.client.Journey(f.Context(), kind, f.namespace, name)
	if err != nil {
		return []string{err.Error()}
	}
	var out bytes.Buffer
	if err := tree.Draw(&out, journey.DrawOptions{}); err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if m := callLine.FindStringSubmatch(line); m != nil {
			text := m[1]
			for _, v := range varying {
				text = v.pattern.ReplaceAllString(text, v.by)
			}
			lines = append(lines, strings.TrimSpace(text))
		}
	}
	return lines
}

// callLine is a line with a call, or with a request, which has times before it.
var callLine = regexp.MustCompile(`^[ *] +[0-9.]+ \S+ +[0-9.]+ \S+  (?:[│├└─ ]*)((?:create|patch|update|mutating|validating|validation rules|conversion|aggregated).*)`)

// A journey shows each webhook, policy, run of rules and conversion with its verdict and cost, also that of a write that was refused.
func TestJourney(t *testing.T) {
	f := newFixture(t, 0).in(t, "calls")
	f.crd("gadgets", "Gadget", "/convert", `{type: object, properties: {spec: {type: object, properties: {size: {type: integer}}, x-kubernetes-validations: [{rule: "self.size < 10"}]}}}`)
	f.until("a gadget is created", func() bool {
		return f.try(`{apiVersion: example.com/v1, kind: Gadget, metadata: {name: a, namespace: calls}, spec: {size: 1}}`) == nil
	})
	v2 := f.client.Dynamic().Resource(schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "gadgets"}).Namespace("calls")
	if _, err := v2.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	f.compare("gadget", "a", `
create gadget.example.com/a, kubectl as kubernetes-admin: 201
validation rules of gadgets.example.com (CEL cost 3)
patch gadget.example.com/a, kubectl as kubernetes-admin: 200
conversion webhook gadgets.example.com from v1 to v2, objects 1
conversion webhook gadgets.example.com from v2 to v1, objects 1
conversion webhook gadgets.example.com from v2 to v1, objects 1
conversion webhook gadgets.example.com from v2 to v1, objects 1
validation rules of gadgets.example.com (CEL cost 3)
conversion webhook gadgets.example.com from v2 to v1, objects 1
conversion webhook gadgets.example.com from v1 to v2, objects 1`)

	f.hook("Mutating", "/patch", "Fail", "pods")
	f.policy("Mutating", `failurePolicy: Fail, reinvocationPolicy: Never, mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'team': 'web'}}}"}}]`, "")
	f.until("both change pods", func() bool {
		_ = f.api.CoreV1().Pods("calls").Delete(t.Context(), "web", *metav1.NewDeleteOptions(0))
		if f.pod("web") != nil {
			return false
		}
		p, err := f.api.CoreV1().Pods("calls").Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && p.Labels["team"] == "web" && p.Annotations["sidecar"] == "yes"
	})
	f.policy("Validating", `validations: [{expression: "object.metadata.labels['team'] == 'api'", message: "only api"}]`, `, validationActions: [Warn, Audit]`)
	for i, want := range []string{"warned: only api", "denied: only api"} {
		if i == 1 {
			const binding = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/calls-binding"
			if err := f.api.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(binding).Body([]byte(`{"spec":{"validationActions":["Deny"]}}`)).Do(t.Context()).Error(); err != nil {
				t.Fatal(err)
			}
		}
		name := fmt.Sprint("web-", i)
		f.until("the policy is evaluated", func() bool {
			_ = f.api.CoreV1().Pods("calls").Delete(t.Context(), name, *metav1.NewDeleteOptions(0))
			_ = f.pod(name)
			return strings.Contains(strings.Join(f.drawn("pod", name), "\n"), want)
		})
	}
	f.compare("pod", "web-1", `
create pod/web-1, apitest as kubernetes-admin: 422
mutating policy calls-policy (binding calls-binding, CEL cost 80): patched
mutating webhook hook.example.com (configuration calls): patched
validating policy calls-policy (binding calls-binding, CEL cost 5): denied: only api`)
}

// A request that another server is to answer has a span that says how that went.
func TestAggregatedRequest(t *testing.T) {
	f := newFixture(t, 0).in(t, "aggregated")
	f.aggregate("v1.queues.example.com")
	f.until("the API is aggregated", func() bool {
		err := f.api.CoreV1().RESTClient().Post().AbsPath("/apis/queues.example.com/v1/namespaces/aggregated/queues").Body([]byte(`{}`)).Do(t.Context()).Error()
		return apierrors.IsServiceUnavailable(err)
	})
	spans := slices.DeleteFunc(f.recorder.Spans(), func(s journey.Span) bool { return s.Stage != journey.AggregatedAPI })
	if len(spans) == 0 || fmt.Sprint(spans[0].Attributes) != "[{apiservice v1.queues.example.com} {code 503}]" || spans[0].Error != "Service Unavailable" {
		t.Errorf("the spans are %v", spans)
	}
}

// compare compares the calls of a journey.
func (f *fixture) compare(kind, name, want string) {
	f.Helper()
	if got := strings.Join(f.drawn(kind, name), "\n"); got != strings.TrimSpace(want) {
		f.Errorf("%s/%s:\n%s\nwant:\n%s", kind, name, got, strings.TrimSpace(want))
	}
}
