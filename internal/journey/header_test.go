package journey

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTraceparent(t *testing.T) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	c, err := ParseTraceparent(good)
	if err != nil {
		t.Fatal(err)
	}
	if c.Trace.String() != "4bf92f3577b34da6a3ce929d0e0e4736" || c.Span.String() != "00f067aa0ba902b7" {
		t.Errorf("parsed %v", c)
	}
	if got := c.Traceparent(); got != good {
		t.Errorf("formatted %s", got)
	}
	for _, s := range []string{"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"} {
		if got, err := ParseTraceparent(s); err != nil || got != c {
			t.Errorf("ParseTraceparent(%q) = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "00", good + "-more", good + "x", strings.ToUpper(good), "ff" + good[2:], good[:54], strings.Replace(good, "-", "_", 1),
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
		"00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01", "01" + good[2:] + strings.Repeat("-", 1000),
	} {
		if got, err := ParseTraceparent(s); err == nil || !got.IsZero() {
			t.Errorf("ParseTraceparent(%q) = %v, %v; want an error", s, got, err)
		}
	}
}

func TestBeginHonoursHeaders(t *testing.T) {
	r := New(Options{Capacity: 4})
	h := http.Header{}
	h.Set(HeaderTraceparent, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	h.Set(HeaderCause, "u-1@5, u-2@6")
	h.Set("User-Agent", "operator")
	tr := r.Begin(h, "patch", "pods", "n", "p")
	tr.End(200)
	v := r.Snapshot()[0]
	if v.Trace.String() != "4bf92f3577b34da6a3ce929d0e0e4736" || v.Parent.String() != "00f067aa0ba902b7" || v.Span == v.Parent || v.Component != "operator" {
		t.Errorf("%+v", v)
	}
	if diff := cmp.Diff([]CauseView{{Cause: Cause{"u-1", 5}}, {Cause: Cause{"u-2", 6}}}, v.Causes); diff != "" {
		t.Errorf("causes (-want +got):\n%s", diff)
	}

	h.Set(HeaderTraceparent, "nonsense")
	h.Set(HeaderCause, "nonsense")
	tr = r.Begin(h, "patch", "pods", "n", "p")
	if tr.Context().Trace == (TraceID{}) || tr.Context().Trace == v.Trace {
		t.Errorf("a bad traceparent gave trace %v", tr.Context().Trace)
	}
}

func TestCauses(t *testing.T) {
	const uuid = "0d9c2c9e-58c3-4a3a-9d6a-111111111111"
	for header, want := range map[string][]Cause{
		uuid + "@1":                   {{uuid, 1}},
		uuid + "@9223372036854775807": {{uuid, 9223372036854775807}},
		"a@1,b@2, c@3 , D-9@4":        {{"a", 1}, {"b", 2}, {"c", 3}, {"D-9", 4}},
		strings.Repeat(uuid+"@12345, ", 3) + uuid + "@6": {{uuid, 12345}, {uuid, 12345}, {uuid, 12345}, {uuid, 6}},
	} {
		got, err := ParseCauses(header)
		if err != nil {
			t.Errorf("ParseCauses(%q): %v", header, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ParseCauses(%q) (-want +got):\n%s", header, diff)
		}
	}
	if c := (Cause{uuid, 7}); c.String() != uuid+"@7" {
		t.Errorf("formatted %s", c)
	}
	for _, header := range []string{
		"", "@", "a", "a@", "@1", "a@0", "a@01", "a@-1", "a@+1", "a@1x", "a@ 1", "a@9223372036854775808", "a@1@2", "a b@1", "a/b@1", "ä@1", "a@1,", ",a@1",
		"a@1,b@2,c@3,d@4,e@5", uuid + "x@1", strings.Repeat("a", 5000) + "@1",
	} {
		if got, err := ParseCauses(header); err == nil {
			t.Errorf("ParseCauses(%.40q) = %v; want an error", header, got)
		}
	}
}

func FuzzHeaders(f *testing.F) {
	f.Add("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "a@1, b@2")
	f.Fuzz(func(t *testing.T, traceparent, cause string) {
		if c, err := ParseTraceparent(traceparent); err == nil {
			if again, err := ParseTraceparent(c.Traceparent()); err != nil || again != c {
				t.Errorf("%q does not survive formatting: %v, %v", traceparent, again, err)
			}
		}
		causes, err := ParseCauses(cause)
		if err != nil {
			return
		}
		for _, c := range causes {
			if again, err := ParseCauses(c.String()); err != nil || len(again) != 1 || again[0] != c {
				t.Errorf("%v does not survive formatting: %v, %v", c, again, err)
			}
		}
	})
}

func TestComponent(t *testing.T) {
	for agent, want := range map[string]string{
		"kubectl/v1.37.1 (linux/amd64) kubernetes/0000000": "kubectl", "operator": "operator", "": "",
		"kube-controller-manager/v1.37.1 (linux/amd64) kubernetes/0000000/system:serviceaccount:kube-system:job-controller": "job-controller",
	} {
		if got := component(agent); got != want {
			t.Errorf("%q is %q, not %q", agent, got, want)
		}
	}
}
