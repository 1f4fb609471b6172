package webhook_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestBadAnswers: whatever a webhook answers, the client gets a Kubernetes error with upstream's text, or, if failures are to be ignored, its object.
func TestBadAnswers(t *testing.T) {
	c := newCluster(t)
	text := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var review admissionv1.AdmissionReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, strings.ReplaceAll(body, "UID", string(review.Request.UID)))
		}
	}
	v1 := func(response string) http.HandlerFunc {
		return text(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":` + response + `}`)
	}
	status := func(code int, header, value, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if header != "" {
				w.Header().Set(header, value)
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	const prefix, invalid = `Internal error occurred: failed calling webhook "bad.k8s.io": `, `Internal error occurred: failed calling webhook "bad.k8s.io": received invalid webhook response: `
	redirected := make(chan bool, 1)
	c.hooks.raw("/elsewhere", func(http.ResponseWriter, *http.Request) { redirected <- true })
	cases := []struct {
		name   string
		handle http.HandlerFunc
		want   string
		always bool // whether the error is no failure, so that the failurePolicy does not matter
	}{
		{"nothing", text(""), prefix + "failed to call webhook: 0-length response with status code: 200 and content type: application/json", false},
		{"garbage", text("garbage"), prefix + "failed to call webhook: couldn't get version/kind; json parse error: invalid character 'g' looking for beginning of value", false},
		{"half", text(`{"kind":"Admission`), prefix + "failed to call webhook: couldn't get version/kind; json parse error: unexpected end of JSON input", false},
		{"no-response", v1("null"), invalid + "webhook response was absent", false},
		{"no-kind", text(`{"response":{"uid":"UID","allowed":true}}`), invalid + "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=", false},
		{"other-kind", text(`{"kind":"Pod","apiVersion":"v1"}`), prefix + `failed to call webhook: no kind "Pod" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"`, false},
		{"other-version", text(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","response":{"uid":"UID","allowed":true}}`),
			prefix + "failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion", false},
		{"patch", v1(`{"uid":"UID","allowed":true,"patch":"W10="}`), invalid + "validating webhook may not return response.patch", false},
		{"patch-type", v1(`{"uid":"UID","allowed":true,"patchType":"JSONPatch"}`), invalid + "validating webhook may not return response.patchType", false},
		{"not-found", status(404, "", "", "nobody"), prefix + "failed to call webhook: the server could not find the requested resource", false},
		{"error", status(500, "", "", "broken"), prefix + `failed to call webhook: an error on the server ("broken") has prevented the request from succeeding`, false},
		{"redirect", status(307, "Location", "/elsewhere", ""), prefix + "failed to call webhook: the server responded with the status code 307 but did not return more information", false},
		{"huge", func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}, prefix + "failed to call webhook: the response body is larger than 3145728 bytes", false},
		{"denied", v1(`{"uid":"UID","allowed":false}`), `admission webhook "bad.k8s.io" denied the request without explanation`, true},
		{"denied-reason", v1(`{"uid":"UID","allowed":false,"status":{"reason":"Because","code":200,"status":"Success"}}`), `admission webhook "bad.k8s.io" denied the request: Because`, true},
		{"denied-wild", v1(`{"uid":"UID","allowed":false,"status":{"message":"wild","code":123456}}`), `admission webhook "bad.k8s.io" denied the request: wild`, true},
	}
	var closed, open []validatingHook
	for i, one := range cases {
		c.hooks.raw("/"+one.name, one.handle)
		only := &metav1.LabelSelector{MatchLabels: map[string]string{"case": one.name}}
		h := validatingHook{Name: "bad.k8s.io", ClientConfig: c.byService("/" + one.name), Rules: rules{rule("", "v1", "secrets", "CREATE")}, ObjectSelector: only}
		if i == 0 {
			h.ClientConfig = c.byURL("/" + one.name)
		}
		closed = append(closed, h)
		h.Rules, h.FailurePolicy = rules{rule("", "v1", "configmaps", "CREATE")}, ptr.To(admissionregistrationv1.Ignore)
		open = append(open, h)
	}
	for i := range closed { // names must be unique in a configuration
		c.validating(fmt.Sprint("closed-", i), closed[i])
		c.validating(fmt.Sprint("open-", i), open[i])
	}
	for _, one := range cases {
		meta := metav1.ObjectMeta{Name: one.name, Labels: map[string]string{"case": one.name}}
		_, err := c.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
		c.expect(err, one.want)
		if !one.always && !apierrors.IsInternalError(err) {
			t.Errorf("%s: the reason is %s", one.name, apierrors.ReasonForError(err))
		}
		_, err = c.api.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
		if one.always {
			c.expect(err, one.want)
		} else {
			c.expect(err, "")
		}
	}
	select {
	case <-redirected:
		t.Error("a redirect was followed")
	default:
	}
}

// TestWrongUID: the answer to another review does not count in v1; v1beta1 never had that check.
func TestWrongUID(t *testing.T) {
	c := newCluster(t)
	handle := func(version string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var review admissionv1.AdmissionReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.APIVersion != "admission.k8s.io/"+version {
				t.Errorf("%v: the version is %s, want %s", err, review.APIVersion, version)
			}
			_, _ = fmt.Fprintf(w, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/%s","response":{"uid":"wrong","allowed":true}}`, version)
		}
	}
	c.hooks.raw("/v1", handle("v1"))
	c.hooks.raw("/v1beta1", handle("v1beta1"))
	c.validating("v1", validatingHook{Name: "v1.k8s.io", ClientConfig: c.byURL("/v1"), Rules: rules{rule("", "v1", "secrets")}, AdmissionReviewVersions: []string{"v2", "v1", "v1beta1"}})
	c.validating("v1beta1", validatingHook{Name: "v1beta1.k8s.io", ClientConfig: c.byURL("/v1beta1"), Rules: rules{rule("", "v1", "configmaps")}, AdmissionReviewVersions: []string{"v1beta1", "v1"},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "default"}}})
	_, err := c.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), `received invalid webhook response: expected response.uid="`) || !strings.HasSuffix(err.Error(), `", got "wrong"`) {
		t.Errorf("failed with %v", err)
	}
	_, err = c.api.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("m", nil), metav1.CreateOptions{})
	c.expect(err, "")
}

// TestBadPatches: patches that cannot be applied are errors of the server, and change nothing.
func TestBadPatches(t *testing.T) {
	c := newCluster(t)
	const internal = "Internal error occurred: "
	cases := []struct{ name, patch, want string }{
		{"garbage", `x`, internal + `failed calling webhook "p.k8s.io": received undecodable patch in webhook response: invalid character 'x' looking for beginning of value`},
		{"missing", `[{"op":"replace","path":"/nothing/there","value":1}]`, internal + `replace operation does not apply: doc is missing path: /nothing/there: missing value`},
		{"wrong-type", `[{"op":"replace","path":"/data","value":"text"}]`, internal + `json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string`},
		{"other-kind", `[{"op":"replace","path":"/kind","value":"Secret"}]`, internal + `converting (v1.Secret) to (v1.ConfigMap): unknown conversion`},
		{"other-namespace", `[{"op":"replace","path":"/metadata/namespace","value":"kube-system"}]`, `the namespace of the provided object does not match the namespace sent on the request`},
		{"deep", `[{"op":"add","path":"` + strings.Repeat("/a", 600) + `","value":1}]`, internal + `the patch reaches deeper than 500 levels`},
		{"bomb", `[` + strings.Repeat(`{"op":"copy","from":"/data","path":"/data/x"},`, 40) + `{"op":"test","path":"/data","value":1}]`, ""},
	}
	var hooks []mutatingHook
	for _, one := range cases {
		c.hooks.review("/"+one.name, patch(one.patch))
		hooks = append(hooks, mutatingHook{Name: "p.k8s.io", ClientConfig: c.byURL("/" + one.name), Rules: rules{rule("", "v1", "configmaps", "CREATE")},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"case": one.name}}})
	}
	for i, h := range hooks {
		c.mutating(fmt.Sprint("p-", i), h)
	}
	for _, one := range cases {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: one.name, Labels: map[string]string{"case": one.name}}, Data: map[string]string{"k": strings.Repeat("v", 100)}}
		_, err := c.api.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{})
		switch {
		case one.want != "":
			c.expect(err, one.want)
		case !apierrors.IsInternalError(err):
			t.Errorf("%s: %v", one.name, err)
		}
		if _, err := c.api.CoreV1().ConfigMaps("default").Get(t.Context(), one.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s exists: %v", one.name, err)
		}
	}
}

// TestConnections: calls share kept connections; a connection that the server has closed meanwhile does not fail a call; a webhook that hangs holds no
// other up; and when configurations are gone, so are connections and goroutines.
func TestConnections(t *testing.T) {
	c := newCluster(t)
	c.hooks.review("/allow", allow)
	c.hooks.raw("/hang", hang)
	before := runtime.NumGoroutine()
	c.validating("allow", validatingHook{Name: "allow.k8s.io", ClientConfig: c.byService("/allow"), Rules: rules{rule("", "v1", "secrets")}})
	create := func(name string) error {
		_, err := c.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	c.must(create("first"))
	_, accepted := c.hooks.connections()
	for i := range 20 {
		c.must(create(fmt.Sprint("s", i)))
	}
	if _, after := c.hooks.connections(); after != accepted {
		t.Errorf("20 calls opened %d connections", after-accepted)
	}
	c.hooks.CloseClientConnections()
	c.must(create("closed"))
	c.validating("hang", validatingHook{Name: "hang.k8s.io", ClientConfig: c.byService("/hang"), Rules: rules{rule("", "v1", "configmaps", "CREATE")}, TimeoutSeconds: ptr.To[int32](3),
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "default"}}})
	const hanging = 30
	ended := make(chan error, hanging)
	for i := range hanging {
		go func() {
			_, err := c.api.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(fmt.Sprint("h", i), nil), metav1.CreateOptions{})
			ended <- err
		}()
	}
	c.eventually(func() bool { open, _ := c.hooks.connections(); return open >= hanging })
	start := time.Now()
	c.must(create("meanwhile"))
	if took := time.Since(start); took > 2500*time.Millisecond {
		t.Errorf("a write took %v while webhooks hung", took)
	}
	for range hanging {
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "context deadline exceeded") {
			t.Errorf("a call that hung ended with %v", err)
		}
	}
	c.must(c.api.AdmissionregistrationV1().ValidatingWebhookConfigurations().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	c.eventually(func() bool { open, _ := c.hooks.connections(); return open == 0 })
	c.eventually(func() bool { return runtime.NumGoroutine() <= before+5 })
}

// TestVanishedServer: a webhook server that is gone refuses, or does not, at once.
func TestVanishedServer(t *testing.T) {
	c := newCluster(t)
	c.hooks.review("/allow", allow)
	c.validating("gone", validatingHook{Name: "gone.k8s.io", ClientConfig: c.byService("/allow"), Rules: rules{rule("", "v1", "secrets")}})
	missing := c.byService("/allow")
	missing.Service.Name = "nobody"
	c.validating("missing", validatingHook{Name: "missing.k8s.io", ClientConfig: missing, Rules: rules{rule("", "v1", "endpoints")}})
	c.hooks.CloseClientConnections()
	c.hooks.Close()
	start := time.Now()
	_, err := c.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	if !apierrors.IsInternalError(err) || !strings.HasSuffix(err.Error(), "connect: connection refused") || time.Since(start) > 2*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	_, err = c.api.CoreV1().Endpoints("default").Create(t.Context(), &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "e"}}, metav1.CreateOptions{})
	c.expect(err, fmt.Sprintf(`Internal error occurred: failed calling webhook "missing.k8s.io": failed to call webhook: Post "https://nobody.default.svc:%d/allow?timeout=10s": service "nobody" not found`, c.hooks.port))
}

// TestRecursion: a webhook that writes what it is asked about is called by its own write, and so on, until the time of the first request is up. The server
// serves others meanwhile and recovers.
func TestRecursion(t *testing.T) {
	c := newCluster(t)
	c.hooks.review("/recurse", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		_, err := c.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"}}, metav1.CreateOptions{})
		if err != nil {
			return deny("recursion")(r)
		}
		return allow(r)
	})
	c.validating("recurse", validatingHook{Name: "recurse.k8s.io", ClientConfig: c.byService("/recurse"), Rules: rules{rule("", "v1", "secrets", "CREATE")}, TimeoutSeconds: ptr.To[int32](1)})
	start := time.Now()
	_, err := c.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	if err == nil || time.Since(start) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	_, err = c.api.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("other", nil), metav1.CreateOptions{})
	c.expect(err, "")
}
