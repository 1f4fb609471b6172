package webhook_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/webhook"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/apitest"
	"skiff/internal/journey"
)

// TestReinvocation: a webhook with IfNeeded is called again if the object changes after it, once; one without is not. Webhooks run in the order of the names
// of their configurations.
func TestReinvocation(t *testing.T) {
	for _, tc := range []struct {
		name     string
		policies [3]bool // IfNeeded
		changes  [3]bool
		want     string
	}{
		{"nothing changes", [3]bool{true, true, true}, [3]bool{}, "012"},
		{"the last changes, the first two want to know", [3]bool{true, true, false}, [3]bool{false, false, true}, "01201"},
		{"nobody wants to know", [3]bool{}, [3]bool{true, true, true}, "012"},
		{"only those before the last change are called again", [3]bool{true, true, true}, [3]bool{false, true, false}, "0120"},
		{"a change in the second run is seen by those after it, and there is no third", [3]bool{true, true, true}, [3]bool{true, true, true}, "012012"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t)
			var mu sync.Mutex
			calls := ""
			for i := range 3 {
				n := 0
				c.hooks.review(fmt.Sprint("/", i), func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					mu.Lock()
					defer mu.Unlock()
					calls += fmt.Sprint(i)
					if n++; !tc.changes[i] {
						return patch(`[{"op":"test","path":"/kind","value":"Secret"}]`)(r) // a patch that changes nothing
					}
					return patch(fmt.Sprintf(`[{"op":"add","path":"/metadata/annotations","value":{"a":"%d-%d"}}]`, i, n))(r)
				})
			}
			for i := 2; i >= 0; i-- {
				h := mutatingHook{Name: "h.k8s.io", ClientConfig: c.byURL(fmt.Sprint("/", i)), Rules: rules{rule("", "v1", "secrets", "CREATE")}}
				if tc.policies[i] {
					h.ReinvocationPolicy = ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy)
				}
				c.mutating(fmt.Sprint("config-", i), h)
			}
			_, err := c.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
			c.must(err)
			if calls != tc.want {
				t.Errorf("called %s, want %s", calls, tc.want)
			}
		})
	}
}

// TestDryRun: a webhook with side effects refuses dry runs, even if its failures are ignored. Such webhooks can only be left from an older server.
func TestDryRun(t *testing.T) {
	hooks := newHookServer(t)
	hooks.review("/allow", allow)
	c := &cluster{t: t, hooks: hooks}
	for effects, want := range map[admissionregistrationv1.SideEffectClass]string{
		admissionregistrationv1.SideEffectClassNone:         "",
		admissionregistrationv1.SideEffectClassNoneOnDryRun: "",
		admissionregistrationv1.SideEffectClassSome:         `admission webhook "h.k8s.io" does not support dry run`,
		admissionregistrationv1.SideEffectClassUnknown:      `admission webhook "h.k8s.io" does not support dry run`,
	} {
		store := objectstest.New()
		h := validatingHook{Name: "h.k8s.io", ClientConfig: c.byURL("/allow"), Rules: rules{rule("", "v1", "secrets")}, SideEffects: &effects, FailurePolicy: ptr.To(admissionregistrationv1.Ignore),
			NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}}
		complete(&h.Name, &h.SideEffects, &h.AdmissionReviewVersions)
		store.Put(admissionregistrationv1.Resource("validatingwebhookconfigurations"), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Webhooks: []validatingHook{h}})
		plugin := webhook.NewValidating(webhook.Options{Store: store})
		a := admissiontest.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}})
		c.expect(admissiontest.Through(t, plugin, a), "")
		a.DryRun = true
		c.expect(admissiontest.Through(t, plugin, a), want)
	}
}

// TestWarnings: warnings of webhooks reach the client, cut when they are too long in all.
func TestWarnings(t *testing.T) {
	c := newCluster(t)
	long := strings.Repeat("ä", 3000)
	c.hooks.review("/warn", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"first", "first", "", long}}
	})
	c.hooks.review("/more", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{long + "x"}}
	})
	c.mutating("m", mutatingHook{Name: "warn.k8s.io", ClientConfig: c.byURL("/warn"), Rules: rules{rule("", "v1", "secrets")}})
	got := c.warnings("a")
	if want := []string{`299 - "first"`, `299 - "` + long + `"`}; !slices.Equal(got, want) {
		t.Errorf("got %d warnings", len(got))
	}
	c.validating("v", validatingHook{Name: "more.k8s.io", ClientConfig: c.byURL("/more"), Rules: rules{rule("", "v1", "secrets")}})
	short := `299 - "` + long[:2*256] + `"`
	if got := c.warnings("b"); !slices.Equal(got, []string{`299 - "first"`, short, short}) {
		t.Errorf("got %q", got)
	}
}

// warnings creates a secret and returns the warnings.
func (c *cluster) warnings(name string) []string {
	c.t.Helper()
	var got warningCollector
	result := c.api.CoreV1().RESTClient().Post().RequestURI("/api/v1/namespaces/default/secrets").SetHeader("Content-Type", "application/json").
		WarningHandler(&got).Body([]byte(`{"metadata":{"name":"` + name + `"}}`)).Do(c.t.Context())
	c.must(result.Error())
	return got
}

type warningCollector []string

func (w *warningCollector) HandleWarningHeader(code int, agent, text string) {
	*w = append(*w, fmt.Sprintf(`%d %s "%s"`, code, agent, text))
}

// TestStatus: the refusal has the code, reason and details of the webhook.
func TestStatus(t *testing.T) {
	c := newCluster(t)
	c.hooks.review("/deny", func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: 402, Reason: "PaymentRequired", Message: "pay", Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: "broke"}}}}}
	})
	c.hooks.review("/second", deny("second"))
	secrets := rules{rule("", "v1", "secrets")}
	c.validating("v", validatingHook{Name: "deny.k8s.io", ClientConfig: c.byURL("/deny"), Rules: secrets}, validatingHook{Name: "second.k8s.io", ClientConfig: c.byURL("/second"), Rules: secrets})
	_, err := c.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	status, ok := err.(*apierrors.StatusError)
	if !ok || status.ErrStatus.Code != 402 || status.ErrStatus.Reason != "PaymentRequired" || len(status.ErrStatus.Details.Causes) != 1 ||
		status.ErrStatus.Message != `admission webhook "deny.k8s.io" denied the request: pay` {
		t.Errorf("refused with %+v", err)
	}
}

// TestManagedFieldsAreKept: a webhook cannot break the managedFields of an object.
func TestManagedFieldsAreKept(t *testing.T) {
	c := newCluster(t)
	c.hooks.review("/break", patch(`[{"op":"replace","path":"/metadata/managedFields/0/manager","value":"webhook"},{"op":"replace","path":"/metadata/managedFields/0/fieldsType","value":"Nonsense"}]`))
	c.mutating("m", mutatingHook{Name: "break.k8s.io", ClientConfig: c.byURL("/break"), Rules: rules{rule("", "v1", "secrets")}})
	got := c.warnings("s")
	if len(got) != 1 || !strings.Contains(got[0], ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: ") {
		t.Errorf("warned of %q", got)
	}
	s, err := c.api.CoreV1().Secrets("default").Get(t.Context(), "s", metav1.GetOptions{})
	if err != nil || len(s.ManagedFields) != 0 && s.ManagedFields[0].Manager == "webhook" {
		t.Errorf("%v: the managedFields are %v", err, s.ManagedFields)
	}
}

// TestOwnerReferences: duplicates that a webhook makes are removed with a warning.
func TestOwnerReferences(t *testing.T) {
	c := newCluster(t)
	const owner = `{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u"}`
	c.hooks.review("/own", patch(`[{"op":"add","path":"/metadata/ownerReferences","value":[`+owner+`,`+owner+`]}]`))
	c.mutating("m", mutatingHook{Name: "own.k8s.io", ClientConfig: c.byURL("/own"), Rules: rules{rule("", "v1", "secrets")}})
	if got := c.warnings("s"); len(got) != 1 || !strings.Contains(got[0], "duplicate entries after mutating admission happens") {
		t.Errorf("warned of %q", got)
	}
	s, err := c.api.CoreV1().Secrets("default").Get(t.Context(), "s", metav1.GetOptions{})
	if err != nil || len(s.OwnerReferences) != 1 {
		t.Errorf("%v: the owners are %v", err, s.OwnerReferences)
	}
}

// TestObservability: calls are counted in upstream's metrics and recorded as spans of the request, with their verdict.
func TestObservability(t *testing.T) {
	recorder := journey.New(journey.Options{})
	c := newCluster(t, apitest.WithServer(func(o *apiserver.Options) { o.Journey = recorder }))
	c.hooks.review("/deny", deny("no"))
	c.hooks.review("/patch", patch(`[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]`))
	secrets := rules{rule("", "v1", "secrets")}
	c.mutating("m", mutatingHook{Name: "patch.k8s.io", ClientConfig: c.byURL("/patch"), Rules: secrets},
		mutatingHook{Name: "open.k8s.io", ClientConfig: c.byURL("/missing"), Rules: secrets, FailurePolicy: ptr.To(admissionregistrationv1.Ignore)})
	stored, err := c.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "stored"}}, metav1.CreateOptions{})
	c.must(err)
	if drawn := calls(recorder, string(stored.UID)); !slices.Equal(drawn, []string{"patch.k8s.io patched", "open.k8s.io failed open"}) {
		t.Errorf("the journey of the object has the calls %q", drawn)
	}
	c.validating("v", validatingHook{Name: "deny.k8s.io", ClientConfig: c.byURL("/deny"), Rules: secrets})
	_, err = c.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	c.expect(err, `admission webhook "deny.k8s.io" denied the request: no`)
	metrics, err := c.api.CoreV1().RESTClient().Get().RequestURI("/metrics").Do(t.Context()).Raw()
	c.must(err)
	for _, line := range []string{
		`apiserver_admission_webhook_request_total{code="200",name="patch.k8s.io",operation="CREATE",rejected="false",type="admit"} 2`,
		`apiserver_admission_webhook_request_total{code="404",name="open.k8s.io",operation="CREATE",rejected="false",type="admit"} 2`,
		`apiserver_admission_webhook_request_total{code="400",name="deny.k8s.io",operation="CREATE",rejected="true",type="validating"} 1`,
		`apiserver_admission_webhook_fail_open_count{name="open.k8s.io",type="admit"} 2`,
		`apiserver_admission_webhook_rejection_count{error_type="no_error",name="deny.k8s.io",operation="CREATE",rejection_code="400",type="validating"} 1`,
		`apiserver_admission_webhook_admission_duration_seconds_count{name="deny.k8s.io",operation="CREATE",rejected="true",type="validating"} 1`,
	} {
		if !strings.Contains(string(metrics), line+"\n") {
			t.Errorf("no metric %s", line)
		}
	}
	var spans []string
	for _, s := range recorder.Spans() {
		if !slices.Contains(s.Attributes, journey.Attribute{Key: "webhook", Value: "marker.example.com"}) {
			spans = append(spans, fmt.Sprint(s.Component, " ", s.Stage, " ", s.Attributes, " ", s.Error, " ", s.Duration > 0, s.Check()))
		}
	}
	want := []string{
		`kube-apiserver mutating webhook [{configuration m} {webhook patch.k8s.io} {verdict patched}]  true <nil>`,
		`kube-apiserver mutating webhook [{configuration m} {webhook open.k8s.io} {verdict failed open}] failed calling webhook "open.k8s.io": failed to call webhook: the server could not find the requested resource true <nil>`,
		`kube-apiserver validating webhook [{configuration v} {webhook deny.k8s.io} {verdict denied}] admission webhook "deny.k8s.io" denied the request: no true <nil>`,
	}
	if !slices.Equal(spans, append(slices.Clone(want[:2]), want...)) { // those of the first secret, then those of the second
		t.Errorf("the spans are\n%s\nwant\n%s", strings.Join(spans, "\n"), strings.Join(want, "\n"))
	}
}

// calls returns the calls of webhooks within the requests of the journey of an object.
func calls(recorder *journey.Recorder, uid string) (list []string) {
	for _, root := range recorder.Tree(uid).Roots {
		root.Walk(func(n *journey.Node, _ int) {
			if name := n.Attribute("webhook"); name != "" {
				list = append(list, name+" "+n.Attribute("verdict"))
			}
		})
	}
	return list
}
