package eventratelimit_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/eventratelimit"
	"skiff/internal/apiserver/authn"
)

const head = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n"

func newPlugin(t testing.TB, limits string) (admission.Plugin, *testingclock.FakePassiveClock) {
	config, err := eventratelimit.ParseConfig([]byte(head + "limits: [" + limits + "]"))
	if err != nil {
		t.Fatal(err)
	}
	clock := testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
	return eventratelimit.New(config, clock), clock
}

const tooMany = "Too many requests: "

// event returns the creation of an event by a user about a pod.
func event(namespace, user, pod string) *admission.Attributes {
	a := admissiontest.Create(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "e"}, Source: corev1.EventSource{Component: "kubelet"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod}})
	a.User = &authn.User{Username: user}
	return a
}

func TestLimits(t *testing.T) {
	const reached = `limit reached on type `
	for _, c := range []struct {
		name, limits string
		// Each step waits so many seconds and writes an event.
		steps []string
	}{
		{"of the server", `{type: Server, qps: 1, burst: 3}`, []string{
			"0 a u p", "0 b u p", "0 a v q", "0 a u p: " + reached + "Server for key ", "1 b u p", "0 a u p: " + reached + "Server for key ", "10 a u p", "0 a u p", "0 a u p", "0 a u p: " + reached + "Server for key "}},
		{"of each namespace", `{type: Namespace, qps: 1, burst: 1}`, []string{"0 a u p", "0 b u p", "0 a v q: " + reached + "Namespace for key a", "1 a u p"}},
		{"of each user", `{type: User, qps: 1, burst: 1}`, []string{"0 a u p", "0 a v p", "0 b u q: " + reached + "User for key u", "1 b u q"}},
		{"of each source and object", `{type: SourceAndObject, qps: 1, burst: 1}`, []string{"0 a u p", "0 a u q", "0 b u p", "0 a v p: " + reached + "SourceAndObject for key kubeletPodap", "1 a u p"}},
		{"of several kinds", `{type: Server, qps: 1, burst: 2}, {type: Namespace, qps: 1, burst: 1}`, []string{"0 a u p", "0 a u p: " + reached + "Namespace for key a",
			"0 a u p: [" + reached + "Server for key , " + reached + "Namespace for key a]", "0 b u p: " + reached + "Server for key ", "0 b u p: [" + reached + "Server for key , " + reached + "Namespace for key b]"}},
		{"of which the oldest are forgotten", `{type: Namespace, qps: 1, burst: 1, cacheSize: 2}`, []string{"0 a u p", "0 b u p", "0 a u p: " + reached + "Namespace for key a", "0 c u p", "0 b u p", "0 b u p: " + reached + "Namespace for key b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			plugin, clock := newPlugin(t, c.limits)
			for _, step := range c.steps {
				step, refusal, _ := strings.Cut(step, ": ")
				var seconds int
				var namespace, user, pod string
				if _, err := fmt.Sscan(step, &seconds, &namespace, &user, &pod); err != nil {
					t.Fatal(err)
				}
				clock.SetTime(clock.Now().Add(time.Duration(seconds) * time.Second))
				err := admissiontest.Through(t, plugin, event(namespace, user, pod))
				if refusal != "" {
					refusal = tooMany + refusal
				}
				admissiontest.Expect(t, err, refusal)
				if err != nil && !apierrors.IsTooManyRequests(err) {
					t.Errorf("the error is %#v", err)
				}
			}
		})
	}
}

func TestWhatDoesNotCount(t *testing.T) {
	plugin, _ := newPlugin(t, `{type: Server, qps: 1, burst: 1}`)
	through := func(a *admission.Attributes) error { return admissiontest.Through(t, plugin, a) }
	dry := event("a", "u", "p")
	dry.DryRun = true
	for range 3 {
		admissiontest.Expect(t, through(dry), "")
		admissiontest.Expect(t, through(admissiontest.Create(&corev1.Pod{})), "")
		admissiontest.Expect(t, through(admissiontest.Delete(&corev1.Event{})), "")
	}
	admissiontest.Expect(t, through(admissiontest.Update(&corev1.Event{}, &corev1.Event{})), "")
	admissiontest.Expect(t, through(event("a", "u", "p")), tooMany+"limit reached on type Server for key ")
	info := *admissiontest.Info(&corev1.Event{})
	info.GVK = eventsv1.SchemeGroupVersion.WithKind("Event")
	other := event("a", "u", "p")
	other.Info = &info
	admissiontest.Expect(t, through(other), "") // as upstream
}

func TestLongKeys(t *testing.T) {
	plugin, _ := newPlugin(t, `{type: User, qps: 1, burst: 1}`)
	long := strings.Repeat("u", 600)
	admissiontest.Expect(t, admissiontest.Through(t, plugin, event("a", long, "p")), "")
	admissiontest.Expect(t, admissiontest.Through(t, plugin, event("a", long+"v", "p")), "")
	admissiontest.Expect(t, admissiontest.Through(t, plugin, event("a", long, "p")), tooMany+"limit reached on type User for key "+long)
}

// Of many events at once no more are allowed than the limit has tokens.
func TestManyAtOnce(t *testing.T) {
	plugin, _ := newPlugin(t, `{type: Namespace, qps: 1, burst: 10}`)
	var wait sync.WaitGroup
	allowed := make(chan bool, 100)
	for range cap(allowed) {
		wait.Go(func() { allowed <- plugin.(admission.Validator).Validate(t.Context(), event("a", "u", "p")) == nil })
	}
	wait.Wait()
	close(allowed)
	count := 0
	for ok := range allowed {
		if ok {
			count++
		}
	}
	if count != 10 {
		t.Errorf("%d were allowed", count)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []struct{ text, err string }{
		{head + "limits: [{type: Server, qps: 1, burst: 1, cacheSize: -1}, {type: User, qps: 1, burst: 1, cacheSize: 0}]", ""},
		{"", `limits: Invalid value: null: must not be empty`},
		{head + "limits: []", `limits: Invalid value: []: must not be empty`},
		{head + "limits: [{type: Node, qps: 0, burst: -1, cacheSize: -2}]", `[limits[0].type: Unsupported value: "Node": supported values: "Namespace", "Server", "SourceAndObject", "User", ` +
			`limits[0].burst: Invalid value: -1: must be positive, limits[0].qps: Invalid value: 0: must be positive, limits[0].cacheSize: Invalid value: -2: must not be negative]`},
		{head + "limits: [{type: Server, qps: 1, burst: 1}" + strings.Repeat(", {type: Server, qps: 1, burst: 1}", 64) + "]", `limits: Too many: 65: must have at most 64 items`},
		{head + "limit: []", `unknown field "limit"`},
		{head + "limits: [{type: Server, qps: 0.5}]", `failed to decode the Configuration of eventratelimit.admission.k8s.io/v1alpha1`},
		{"apiVersion: eventratelimit.admission.k8s.io/v1\nkind: Configuration", `expected a Configuration of eventratelimit.admission.k8s.io/v1alpha1, got kind "Configuration" of apiVersion "eventratelimit.admission.k8s.io/v1"`},
	} {
		_, err := eventratelimit.ParseConfig([]byte(c.text))
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: the error is %v, want one that has %s", c.text, err, c.err)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(head + "limits: [{type: Server, qps: 1, burst: 1}, {type: User, qps: 1, burst: 1, cacheSize: 5}]"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		if config, err := eventratelimit.ParseConfig(text); err == nil {
			_ = eventratelimit.New(config, testingclock.NewFakePassiveClock(time.Unix(1e9, 0)))
		}
	})
}

// BenchmarkEvent counts an event by four limits.
func BenchmarkEvent(b *testing.B) {
	const ample = `qps: 1000000000, burst: 1000000000}`
	plugin, _ := newPlugin(b, `{type: Server, `+ample+`, {type: Namespace, `+ample+`, {type: User, `+ample+`, {type: SourceAndObject, `+ample)
	a := event("a", "u", "p")
	b.ReportAllocs()
	for b.Loop() {
		if err := plugin.(admission.Validator).Validate(b.Context(), a); err != nil {
			b.Fatal(err)
		}
	}
}
