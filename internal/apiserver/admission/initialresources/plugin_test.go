package initialresources_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/initialresources"
	"skiff/internal/usage/history"
)

const (
	head = "apiVersion: initialresources.admission.k8s.io/v1alpha1\nkind: Configuration\n"
	day  = 24 * time.Hour
)

// past is a history of what images have used.
func past(t *testing.T) *history.History {
	h := history.Open(filepath.Join(t.TempDir(), "history"), slog.New(slog.DiscardHandler))
	use := func(namespace, image string, ago time.Duration, numbers int, milli, mega uint64) {
		for range numbers {
			h.Add(namespace, image, time.Now().Add(-ago), milli*1_000_000, mega<<20)
		}
	}
	use("ns", "web:1", day, 31, 100, 64)
	use("other", "web:1", day, 100, 1000, 1024)
	use("ns", "web:2", 20*day, 31, 200, 128) // only within the month
	use("ns", "web:3", day, 30, 1, 1)        // too few
	use("other", "db:1", day, 31, 300, 256)
	use("ns", "idle:1", day, 31, 1, 1)
	use("ns", "spread:1", day, 80, 100, 100)
	use("ns", "spread:1", day, 20, 400, 400)
	return h
}

func TestEstimates(t *testing.T) {
	h := past(t)
	type amounts struct{ milli, mega int64 } // 0 if nothing is set
	for _, c := range []struct {
		name, config, container string
		requests, limits        amounts
		annotation              string
	}{
		{"its own past", "", `image: "web:1"`, amounts{100, 64}, amounts{200, 128}, "cpu, memory request for container c; cpu, memory limit for container c"},
		{"a month", "", `image: "web:2"`, amounts{200, 128}, amounts{400, 256}, "cpu, memory request for container c; cpu, memory limit for container c"},
		{"other tags in all namespaces", "", `image: "web:3"`, amounts{1000, 1024}, amounts{2000, 2048}, "cpu, memory request for container c; cpu, memory limit for container c"},
		{"another namespace", "", `image: "db:1"`, amounts{300, 256}, amounts{600, 512}, "cpu, memory request for container c; cpu, memory limit for container c"},
		{"nothing known", "", `image: "new:1"`, amounts{}, amounts{}, ""},
		{"what is requested stays", "", `image: "web:1", resources: {requests: {cpu: 1}}`, amounts{1000, 64}, amounts{0, 128}, "memory request for container c; memory limit for container c"},
		{"what is limited stays", "", `image: "web:1", resources: {limits: {memory: 1Mi}}`, amounts{100, 0}, amounts{200, 1}, "cpu request for container c; cpu limit for container c"},
		{"what was idle can start", "", `image: "idle:1"`, amounts{1, 1}, amounts{100, 64}, "cpu, memory request for container c; cpu, memory limit for container c"},
		{"as upstream, requests only", "limits: {percentile: 0}", `image: "web:1"`, amounts{100, 64}, amounts{}, "cpu, memory request for container c"},
		{"another percentile", "requests: {percentile: 50}\nlimits: {percentile: 80, headroomPercent: 300}", `image: "spread:1"`, amounts{100, 100}, amounts{400, 400},
			"cpu, memory request for container c; cpu, memory limit for container c"},
		{"the default percentile", "limits: {headroomPercent: 0}", `image: "spread:1"`, amounts{400, 400}, amounts{400, 400},
			"cpu, memory request for container c; cpu, memory limit for container c"},
		{"a shorter window", "window: 168h\nnamespaceOnly: true", `image: "web:2"`, amounts{100, 64}, amounts{200, 128}, "cpu, memory request for container c; cpu, memory limit for container c"}, // of another tag
		{"a longer window", "window: 720h", `image: "web:2"`, amounts{200, 128}, amounts{400, 256}, "cpu, memory request for container c; cpu, memory limit for container c"},
		{"only its namespace", "namespaceOnly: true", `image: "db:1"`, amounts{}, amounts{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, err := initialresources.ParseConfig([]byte(head+c.config), initialresources.Defaults)
			if err != nil {
				t.Fatal(err)
			}
			pod := admissiontest.Parse(t, &corev1.Pod{}, `{metadata: {namespace: ns, name: p}, spec: {containers: [{name: c, `+c.container+`}]}}`)
			admissiontest.Expect(t, admissiontest.Through(t, initialresources.New(h, config), admissiontest.Create(pod)), "")
			expect := func(what string, list corev1.ResourceList, want amounts) {
				t.Helper()
				// A bucket of the history is up to a tenth wider than what was used.
				for name, n := range map[string][2]int64{"cpu": {list.Cpu().MilliValue(), want.milli}, "memory": {list.Memory().Value(), want.mega << 20}} {
					if got, want := n[0], n[1]; got < want || got > want+want/10+2 {
						t.Errorf("%s %s: got %d, want %d or a tenth more", name, what, got, want)
					}
				}
			}
			expect("request", pod.Spec.Containers[0].Resources.Requests, c.requests)
			expect("limit", pod.Spec.Containers[0].Resources.Limits, c.limits)
			if c.annotation != "" {
				c.annotation = "Initial Resources plugin set: " + c.annotation
			}
			if got := pod.Annotations["kubernetes.io/initial-resources"]; got != c.annotation {
				t.Errorf("annotation %q, want %q", got, c.annotation)
			}
		})
	}
}

func TestFlags(t *testing.T) {
	config, err := initialresources.ParseConfig(nil, initialresources.Options{Percentile: 50, NamespaceOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]int64{"spread:1": 100, "db:1": 0} {
		pod := admissiontest.Parse(t, &corev1.Pod{}, fmt.Sprintf(`{metadata: {namespace: ns, name: p}, spec: {containers: [{name: c, image: %q}]}}`, image))
		admissiontest.Expect(t, admissiontest.Through(t, initialresources.New(past(t), config), admissiontest.Create(pod)), "")
		if got := pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(); got < want || got > want+want/10 {
			t.Errorf("%s: the request is %d, want %d", image, got, want)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []struct{ text, err string }{
		{"", ""},
		{head, ""},
		{head + "requests: {percentile: 0}\nlimits: {percentile: 101, headroomPercent: -1}\nwindow: 1h", `[requests.percentile: Invalid value: 0: must be between 1 and 100, limits.percentile: Invalid value: 101: must be between 0 and 100, ` +
			`limits.headroomPercent: Invalid value: -1: must be between 0 and 10000, window: Invalid value: "1h0m0s": must be between 24h0m0s and 720h0m0s]`},
		{head + "window: a week", "failed to decode the Configuration of initialresources.admission.k8s.io/v1alpha1"},
		{head + "percentile: 5", `unknown field "percentile"`},
		{"kind: Configuration", `expected a Configuration of initialresources.admission.k8s.io/v1alpha1, got kind "Configuration" of apiVersion ""`},
	} {
		_, err := initialresources.ParseConfig([]byte(c.text), initialresources.Defaults)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: the error is %v, want one that has %s", c.text, err, c.err)
		}
	}
	if _, err := initialresources.ParseConfig(nil, initialresources.Options{Percentile: 101}); err == nil {
		t.Error("a flag of 101 percent was taken")
	}
}
