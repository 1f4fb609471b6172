package initialresources_test

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/initialresources"
	"skiff/internal/usage/history"
)

func TestEstimates(t *testing.T) {
	h := history.Open(filepath.Join(t.TempDir(), "history"), slog.New(slog.DiscardHandler))
	const day = 24 * time.Hour
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
	for _, c := range []struct {
		name, container string
		milli, mega     int64 // 0 if nothing is set
		annotation      string
	}{
		{"its own past", `image: "web:1"`, 100, 64, "cpu, memory request for container c"},
		{"a month", `image: "web:2"`, 200, 128, "cpu, memory request for container c"},
		{"other tags in all namespaces", `image: "web:3"`, 1000, 1024, "cpu, memory request for container c"},
		{"another namespace", `image: "db:1"`, 300, 256, "cpu, memory request for container c"},
		{"nothing known", `image: "new:1"`, 0, 0, ""},
		{"what is requested stays", `image: "web:1", resources: {requests: {cpu: 1}}`, 1000, 64, "memory request for container c"},
		{"what is limited stays", `image: "web:1", resources: {limits: {memory: 1Mi}}`, 100, 0, "cpu request for container c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := admissiontest.Parse(t, &corev1.Pod{}, `{metadata: {namespace: ns, name: p}, spec: {containers: [{name: c, `+c.container+`}]}}`)
			admissiontest.Expect(t, admissiontest.Through(t, initialresources.New(h), admissiontest.Create(pod)), "")
			requests := pod.Spec.Containers[0].Resources.Requests
			// A bucket of the history is up to a tenth wider than what was used.
			for name, n := range map[string][2]int64{"cpu": {requests.Cpu().MilliValue(), c.milli}, "memory": {requests.Memory().Value(), c.mega << 20}} {
				if got, want := n[0], n[1]; got < want || got > want+want/10+1 {
					t.Errorf("%s: got %d, want %d or a tenth more", name, got, want)
				}
			}
			if c.annotation != "" {
				c.annotation = "Initial Resources plugin set: " + c.annotation
			}
			if got := pod.Annotations["kubernetes.io/initial-resources"]; got != c.annotation {
				t.Errorf("annotation %q, want %q", got, c.annotation)
			}
		})
	}
}
