package imagepolicywebhook_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/imagepolicywebhook"
)

// backend is a webhook that answers as a test says.
type backend struct {
	*httptest.Server
	dir    string
	answer http.HandlerFunc
	asked  atomic.Int64

	mu      sync.Mutex
	reviews []imagepolicyv1alpha1.ImageReview
}

// status answers with a status.
func status(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "status": %s}`, s)
	}
}

// start starts a webhook, and writes a kubeconfig file for it.
func start(t testing.TB, answer http.HandlerFunc) *backend {
	b := &backend{dir: t.TempDir(), answer: answer}
	b.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.asked.Add(1)
		var review imagepolicyv1alpha1.ImageReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.Method != http.MethodPost || r.URL.Path != "/review" || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("asked with %s %s, %v: %v", r.Method, r.URL, r.Header, err)
		}
		b.mu.Lock()
		b.reviews = append(b.reviews, review)
		b.mu.Unlock()
		b.answer(w, r)
	}))
	t.Cleanup(b.Close)
	b.write(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Certificate().Raw})))
	b.write(t, "kubeconfig", `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: secret}}],
  clusters: [{name: c, cluster: {server: "`+b.URL+`/review", certificate-authority: ca.crt}}]}`)
	return b
}

func (b *backend) write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// plugin returns the plugin that asks the webhook, and its clock.
func (b *backend) plugin(t testing.TB, config string) (admission.Plugin, *testingclock.FakeClock) {
	t.Helper()
	parsed, err := imagepolicywebhook.ParseConfig([]byte("imagePolicy: {kubeConfigFile: kubeconfig, "+config+"}"), b.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	clock := testingclock.NewFakeClock(time.Unix(1e9, 0))
	return imagepolicywebhook.New(parsed, clock, t.Context(), nil), clock
}

// origin has the annotations of a request.
type origin struct{ annotations []string }

func (*origin) AdmissionOptions(admission.Operation) runtime.Object { return nil }
func (*origin) Called(*admission.Attributes, admission.Call)        {}
func (o *origin) Annotate(n admission.Annotation) {
	o.annotations = append(o.annotations, n.Key+"="+n.Value)
}
func write(t testing.TB, spec string) (*admission.Attributes, *origin) {
	pod := admissiontest.Parse(t, &corev1.Pod{}, `{metadata: {namespace: ns, name: p, annotations: {x.image-policy.k8s.io/ticket: "42", other: "1"}}, spec: `+spec+`}`)
	a, o := admissiontest.Create(pod), &origin{}
	a.Origin = o
	return a, o
}

const web = `{initContainers: [{name: i, image: init}], containers: [{name: c, image: web}, {name: d, image: side}], ephemeralContainers: [{name: e, image: debug}]}`

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name, config  string
		answer        http.HandlerFunc
		refusal       string
		asked         int64
		annotation    string
		refusalPrefix bool
	}{
		{"allowed", "", status(`{"allowed": true}`), "", 1, "", false},
		{"allowed, with a note", "", status(`{"allowed": true, "auditAnnotations": {"why": "because"}}`), "", 1, "imagepolicywebhook.image-policy.k8s.io/why=because", false},
		{"allowed, with a note of no name", "", status(`{"allowed": true, "auditAnnotations": {"not a name": "because"}}`), "", 1, "", false},
		{"denied", "", status(`{"allowed": false, "reason": "it is old"}`), `pods "p" is forbidden: image policy webhook backend denied one or more images: it is old`, 1, "", false},
		{"denied without a reason", "defaultAllow: true", status(`{}`), `pods "p" is forbidden: one or more images rejected by webhook backend`, 1, "", false},
		{"an error that may pass", "retryBackoff: 1", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oops", http.StatusInternalServerError) },
			`pods "p" is forbidden: an error on the server ("oops") has prevented the request from succeeding`, 5, "", false},
		{"an error that may pass, at once", "retryBackoff: -1", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oops", http.StatusTooManyRequests) },
			`pods "p" is forbidden: the server has received too many requests and has asked us to try again later`, 5, "", false},
		{"an error that does not pass", "", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusNotFound) },
			`pods "p" is forbidden: the server could not find the requested resource`, 1, "", false},
		{"an error, and open", "defaultAllow: true", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusNotFound) }, "", 1,
			"imagepolicywebhook.image-policy.k8s.io/failed-open=true", false},
		{"nonsense", "", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{") }, `pods "p" is forbidden: `, 1, "", true},
		{"another kind", "", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "Pod"}`)
		}, `pods "p" is forbidden: `, 1, "", true},
		{"an answer without end", "", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"status": {"reason": "`+strings.Repeat("x", 2<<20))
		},
			`pods "p" is forbidden: unexpected error when reading response body. Please retry. Original error: the response body is larger than 1048576 bytes`, 1, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := start(t, c.answer)
			plugin, _ := b.plugin(t, c.config)
			a, o := write(t, web)
			err := admissiontest.Through(t, plugin, a)
			if c.refusalPrefix && err != nil && strings.HasPrefix(err.Error(), c.refusal) {
				c.refusal = err.Error()
			}
			admissiontest.Expect(t, err, c.refusal)
			if n := b.asked.Load(); n != c.asked {
				t.Errorf("asked %d times, want %d", n, c.asked)
			}
			if got := strings.Join(o.annotations, ","); got != c.annotation {
				t.Errorf("annotated with %q, want %q", got, c.annotation)
			}
		})
	}
}

func TestWhatIsAsked(t *testing.T) {
	b := start(t, status(`{"allowed": true}`))
	plugin, _ := b.plugin(t, "")
	pod, _ := write(t, web)
	debug, _ := write(t, web)
	debug.Operation, debug.Old = admission.Update, debug.Object
	debug = admissiontest.Subresource(debug, &corev1.Pod{}, "ephemeralcontainers")
	other, _ := write(t, web)
	other = admissiontest.Subresource(other, &corev1.Pod{}, "status")
	for _, a := range []*admission.Attributes{pod, debug, other, admissiontest.Delete(&corev1.Pod{}), admissiontest.Create(&corev1.Service{})} {
		admissiontest.Expect(t, admissiontest.Through(t, plugin, a), "")
	}
	var asked []string
	for _, r := range b.reviews {
		text, err := json.Marshal(r.Spec)
		if err != nil {
			t.Fatal(err)
		}
		asked = append(asked, string(text))
	}
	if want := []string{
		`{"containers":[{"image":"web"},{"image":"side"},{"image":"init"}],"annotations":{"x.image-policy.k8s.io/ticket":"42"},"namespace":"ns"}`,
		`{"containers":[{"image":"debug"}],"annotations":{"x.image-policy.k8s.io/ticket":"42"},"namespace":"ns"}`,
	}; !slices.Equal(asked, want) {
		t.Errorf("asked %v", asked)
	}
}

// Answers are kept for a time, each for its own question, and those that are large are not.
func TestAnswersAreKept(t *testing.T) {
	for _, c := range []struct {
		name, config, answer string
		after                []time.Duration // of each further write
		asked                []int64         // after each
	}{
		{"allowed", "", `{"allowed": true}`, []time.Duration{5 * time.Minute, 1}, []int64{1, 2}},
		{"denied", "", `{}`, []time.Duration{30 * time.Second, 1}, []int64{1, 2}},
		{"as configured", "allowTTL: 1, denyTTL: -1", `{"allowed": true}`, []time.Duration{time.Second, 1}, []int64{1, 2}},
		{"not at all", "allowTTL: 1, denyTTL: -1", `{}`, []time.Duration{0}, []int64{2}},
		{"not if large", "", `{"reason": "` + strings.Repeat("x", 40<<10) + `"}`, []time.Duration{0}, []int64{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := start(t, status(c.answer))
			plugin, clock := b.plugin(t, c.config)
			ask := func() { a, _ := write(t, web); _ = admissiontest.Through(t, plugin, a) }
			ask()
			for i, d := range c.after {
				clock.Step(d)
				ask()
				if n := b.asked.Load(); n != c.asked[i] {
					t.Errorf("after %v: asked %d times, want %d", d, n, c.asked[i])
				}
			}
			a, _ := write(t, `{containers: [{name: c, image: another}]}`)
			_ = admissiontest.Through(t, plugin, a)
			if n := b.asked.Load(); n != c.asked[len(c.asked)-1]+1 {
				t.Errorf("about another image: asked %d times", n)
			}
		})
	}
}

// A request that ends does not wait for the webhook.
func TestRequestEnds(t *testing.T) {
	block := make(chan struct{})
	b := start(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-block:
		case <-r.Context().Done():
		}
	})
	defer close(block)
	plugin, _ := b.plugin(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for b.asked.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	a, _ := write(t, web)
	err := plugin.(admission.Validator).Validate(ctx, a)
	if err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("refused with %v", err)
	}
}

// An unreachable webhook admits pods or not, as configured.
func TestUnreachable(t *testing.T) {
	b := start(t, status(`{}`))
	b.Close()
	open, _ := b.plugin(t, "defaultAllow: true, retryBackoff: 1")
	closed, _ := b.plugin(t, "retryBackoff: 1")
	a, o := write(t, web)
	admissiontest.Expect(t, admissiontest.Through(t, open, a), "")
	if !slices.Equal(o.annotations, []string{"imagepolicywebhook.image-policy.k8s.io/failed-open=true"}) {
		t.Errorf("annotated with %v", o.annotations)
	}
	if err := admissiontest.Through(t, closed, a); err == nil || !strings.Contains(err.Error(), `pods "p" is forbidden: Post "`+b.URL+`/review?timeout=30s": dial tcp`) {
		t.Errorf("refused with %v", err)
	}
}

func TestConfig(t *testing.T) {
	b := start(t, status(`{}`))
	b.write(t, "empty", "")
	b.write(t, "badca", strings.ReplaceAll(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "https://a", certificate-authority: none}}]}`, "\t", " "))
	for _, c := range []struct{ text, err string }{
		{"imagePolicy: {kubeConfigFile: kubeconfig, allowTTL: 1800, denyTTL: 1, retryBackoff: 300000, defaultAllow: true}", ""},
		{"imagePolicy: {kubeConfigFile: " + filepath.Join(b.dir, "kubeconfig") + "}", ""},
		{"", "imagePolicy.kubeConfigFile: Required value"},
		{"imagePolicy: {kubeConfigFile: kubeconfig, allowTTL: 1801, denyTTL: -2, retryBackoff: 300001}", `[imagePolicy.retryBackoff: Invalid value: 300001: valid value is between 1ms and 5m0s, ` +
			`imagePolicy.allowTTL: Invalid value: 1801: valid value is between 1s and 30m0s, imagePolicy.denyTTL: Invalid value: -2: valid value is between 1s and 30m0s]`},
		{"imagePolicy: {kubeConfigFile: kubeconfig, allowTTL: 9223372036854775807}", "imagePolicy.allowTTL: Invalid value"},
		{"imagePolicy: {kubeConfigFile: none}", `imagePolicy.kubeConfigFile: Invalid value: "none": open ` + filepath.Join(b.dir, "none") + ": no such file"},
		{"imagePolicy: {kubeConfigFile: empty}", `imagePolicy.kubeConfigFile: Invalid value: "empty": invalid configuration: no configuration has been provided`},
		{"imagePolicy: {kubeConfigFile: badca}", `imagePolicy.kubeConfigFile: Invalid value: "badca": invalid configuration: unable to read certificate-authority`},
		{"imagePolicy: {kubeconfig: a}", `unknown field "kubeconfig"`},
		{"imagePolicy: {allowTTL: 5s}", "failed to decode the imagePolicy"},
	} {
		_, err := imagepolicywebhook.ParseConfig([]byte(c.text), b.dir, nil)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: the error is %v, want one that has %s", c.text, err, c.err)
		}
	}
}

// BenchmarkKnownAnswer admits a pod whose images were reviewed before.
func BenchmarkKnownAnswer(b *testing.B) {
	plugin, _ := start(b, status(`{"allowed": true}`)).plugin(b, "")
	a, _ := write(b, web)
	b.ReportAllocs()
	for b.Loop() {
		if err := plugin.(admission.Validator).Validate(b.Context(), a); err != nil {
			b.Fatal(err)
		}
	}
}
