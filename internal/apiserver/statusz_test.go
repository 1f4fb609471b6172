package apiserver_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver"
)

// What is expected here was asked of kube-apiserver 1.37.1.
func TestAbout(t *testing.T) {
	s := start(t, func(o *apiserver.Options) {
		o.Flags = map[string]string{"secure-port": "6443", "api-audiences": "[]"}
	})
	const asText, asJSON, asYAML = "text/plain; charset=utf-8", "application/json;g=config.k8s.io;v=v1beta1;as=", "application/yaml;g=config.k8s.io;v=v1beta1;as="
	for _, kind := range []string{"Statusz", "Flagz"} {
		path := "/" + strings.ToLower(kind)
		for _, test := range []struct{ accept, kind string }{
			{"", asText}, {"*/*", asText}, {"text/plain", asText}, {"application/json,*/*", asText},
			{asJSON + kind, asJSON + kind}, {asYAML + kind, asYAML + kind}, {"text/html," + asJSON + kind, asJSON + kind},
			{strings.Replace(asJSON, "v1beta1", "v1alpha1", 1) + kind, strings.Replace(asJSON, "v1beta1", "v1alpha1", 1) + kind},
			{"application/json", ""}, {"text/html", ""}, {"application/vnd.kubernetes.protobuf", ""}, {asJSON + "Other", ""},
			{strings.Replace(asJSON, "v1beta1", "v1", 1) + kind, ""}, {strings.Replace(asJSON, "config.k8s.io", "example.com", 1) + kind, ""},
		} {
			got := s.send("GET", path, nil, "Accept", test.accept)
			if test.kind == "" {
				status := got.refused(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable)
				if want := "only the following media types are accepted: application/json, application/yaml, text/plain"; status.Message != want {
					t.Errorf("%s as %s: %s", path, test.accept, status.Message)
				}
				continue
			}
			if got.Code != 200 || got.Header.Get("Content-Type") != test.kind {
				t.Errorf("%s as %s: %d, %s", path, test.accept, got.Code, got.Header.Get("Content-Type"))
			}
			if old := strings.Contains(test.kind, "alpha"); old != (got.Header.Get("Warning") == `299 - "This version of the `+path[1:]+` endpoint is deprecated. Please use a newer version."`) {
				t.Errorf("%s as %s warns %q", path, test.accept, got.Header.Get("Warning"))
			}
		}
	}
	var status struct {
		metav1.TypeMeta
		Metadata         metav1.ObjectMeta
		StartTime        metav1.Time
		UptimeSeconds    *int64
		GoVersion        string
		BinaryVersion    string
		EmulationVersion string
		Paths            []string
	}
	body := s.send("GET", "/statusz", nil, "Accept", asJSON+"Statusz").ok().Body
	if err := json.Unmarshal(body, &status); err != nil {
		t.Fatal(err)
	}
	if status.Kind != "Statusz" || status.APIVersion != "config.k8s.io/v1beta1" || status.Metadata.Name != "apiserver" || status.StartTime.IsZero() || status.UptimeSeconds == nil ||
		status.GoVersion != runtime.Version() || status.BinaryVersion != "1.37.1" || status.EmulationVersion != "1.37" || strings.Join(status.Paths, " ") != "/flagz /healthz /livez /metrics /readyz /statusz /version" {
		t.Errorf("%s", body)
	}
	if text := string(s.send("GET", "/statusz", nil).ok().Body); !strings.HasPrefix(text, "\napiserver statusz\nWarning: This endpoint is not meant to be machine parseable") ||
		!strings.Contains(text, "Up: 0 hr 00 min 0") || !strings.Contains(text, "Binary version: 1.37.1\n") {
		t.Error(text)
	}
	if text := string(s.send("GET", "/flagz", nil).ok().Body); !strings.HasSuffix(text, "debugging purposes only.\napi-audiences: []\nsecure-port: 6443\n") {
		t.Error(text)
	}
	if text := string(s.send("GET", "/flagz", nil, "Accept", asYAML+"Flagz").ok().Body); text != "apiVersion: config.k8s.io/v1beta1\nflags:\n  api-audiences: '[]'\n  secure-port: \"6443\"\nkind: Flagz\nmetadata:\n  name: apiserver\n" {
		t.Error(text)
	}
}

func TestFront(t *testing.T) {
	s := start(t, func(o *apiserver.Options) {
		o.Front = apiserver.FrontOptions{AllowedOrigins: []string{`//example\.com(:|$)`}, StrictTransport: []string{"max-age=31536000", "preload"}}
		o.ExternalHost, o.NoProfiling = "api.example.com", true
	})
	got := s.send("GET", "/version", nil, "Origin", "https://example.com")
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin": "https://example.com", "Access-Control-Allow-Credentials": "true", "Access-Control-Expose-Headers": "Date",
		"Access-Control-Allow-Methods": "POST, GET, OPTIONS, PUT, DELETE, PATCH", "Strict-Transport-Security": "max-age=31536000; preload", "Cache-Control": "no-cache, private",
	} {
		if got.Header.Get(name) != want {
			t.Errorf("%s is %q, not %q", name, got.Header.Get(name), want)
		}
	}
	if got := s.send("OPTIONS", "/api/v1/namespaces", nil, "Origin", "https://example.com:8443", "Access-Control-Request-Method", "POST"); got.Code != http.StatusNoContent || got.Header.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("a page that asks beforehand is told %d %v", got.Code, got.Header)
	}
	for _, origin := range []string{"https://example.com.evil.org", "https://example.org", ""} {
		if got := s.send("GET", "/version", nil, "Origin", origin); got.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%q is allowed", origin)
		}
	}
	if body := string(s.send("GET", "/api", nil).ok().Body); !strings.Contains(body, `"serverAddress":"api.example.com:6443"`) {
		t.Error(body)
	}
	if got := s.send("GET", "/debug/pprof/cmdline", nil); got.Code != http.StatusNotFound {
		t.Errorf("profiles are served: %d", got.Code)
	}
	start(t).send("GET", "/debug/pprof/cmdline", nil).ok()
}

func TestFrontRefuses(t *testing.T) {
	for want, o := range map[string]apiserver.FrontOptions{
		"does not pin to start/end": {AllowedOrigins: []string{`example\.com`}},
		"missing closing":           {AllowedOrigins: []string{"^https://(example$"}},
		"--strict-transport":        {StrictTransport: []string{"max-age=soon"}},
		"--goaway-chance":           {GoAwayChance: 0.03},
		"can not be less than 0":    {GoAwayChance: -1},
	} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// With a chance, HTTP/2 clients are told to make another connection; with none they are not, and neither are others.
func TestGoAwayChance(t *testing.T) {
	for _, chance := range []float64{0, 0.02} {
		s := start(t, func(o *apiserver.Options) { o.Front.GoAwayChance = chance })
		told := 0
		for range 2000 {
			r, w := httptest.NewRequest("GET", "/version", nil), httptest.NewRecorder()
			r.ProtoMajor = 2
			if s.ServeHTTP(w, r); w.Header().Get("Connection") == "close" {
				told++
			}
		}
		if chance == 0 && told > 0 || chance > 0 && (told < 5 || told > 120) {
			t.Errorf("with a chance of %v, %d of 2000 clients were told", chance, told)
		}
		if got := s.send("GET", "/version", nil); got.Header.Get("Connection") != "" {
			t.Error("a client that speaks HTTP/1.1 was told")
		}
	}
}
