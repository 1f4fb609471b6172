package podsecurity_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/podsecurity"
	"skiff/internal/apiserver/objects/objectstest"
)

const (
	plainPod      = `{metadata: {namespace: ns, name: p}, spec: {containers: [{name: c, image: i}]}}`
	privilegedPod = `{metadata: {namespace: ns, name: p}, spec: {containers: [{name: c, image: i, securityContext: {privileged: true}}]}}`
	violation     = `pods "p" is forbidden: violates PodSecurity "baseline:latest": privileged (container "c" must not set securityContext.privileged=true)`
)

func namespaceWith(t *testing.T, labels string) *corev1.Namespace {
	t.Helper()
	return admissiontest.Parse(t, &corev1.Namespace{}, `{metadata: {name: ns, labels: {`+labels+`}}}`)
}

func podOf(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	return admissiontest.Parse(t, &corev1.Pod{}, text)
}

func enforced(t *testing.T, level string) (*objectstest.Store, admission.Plugin) {
	t.Helper()
	store := objectstest.New()
	store.Put(corev1.Resource("namespaces"), namespaceWith(t, "pod-security.kubernetes.io/enforce: "+level))
	return store, newPlugin(t, store, "")
}

func TestPods(t *testing.T) {
	_, plugin := enforced(t, "baseline")
	update := func(change func(*corev1.Pod)) *admission.Attributes {
		pod := podOf(t, privilegedPod)
		change(pod)
		return admissiontest.Update(pod, podOf(t, privilegedPod))
	}
	dry := admissiontest.Create(podOf(t, privilegedPod))
	dry.DryRun = true
	debug := func(pod *corev1.Pod) {
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	}
	mirror := podOf(t, privilegedPod)
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	for _, c := range []struct {
		name  string
		write *admission.Attributes
		want  string
	}{
		{"a plain pod", admissiontest.Create(podOf(t, plainPod)), ""},
		{"a privileged one", admissiontest.Create(podOf(t, privilegedPod)), violation},
		{"a privileged one that is not stored", dry, violation},
		{"a mirror pod is no exception", admissiontest.Create(mirror), violation},
		{"an update of labels", update(func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }), ""},
		{"an update of the image", update(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "other" }), violation},
		{"a new ephemeral container", admissiontest.Subresource(update(debug), &corev1.Pod{}, "ephemeralcontainers"), violation},
		{"new resources", admissiontest.Subresource(update(func(p *corev1.Pod) {}), &corev1.Pod{}, "resize"), ""},
		{"a status", admissiontest.Subresource(update(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "other" }), &corev1.Pod{}, "status"), ""},
		{"a delete", admissiontest.Delete(podOf(t, privilegedPod)), ""},
	} {
		t.Run(c.name, func(t *testing.T) { admissiontest.Expect(t, admissiontest.Through(t, plugin, c.write), c.want) })
	}
}

// A pod whose namespace has invalid labels is checked against the strictest level.
func TestInvalidLabels(t *testing.T) {
	_, plugin := enforced(t, "strict")
	if got := through(t, plugin, admissiontest.Create(podOf(t, plainPod))); !strings.HasPrefix(got.err, `pods "p" is forbidden: violates PodSecurity "restricted:latest": `) {
		t.Errorf("a pod is answered with %+v", got)
	}
	const refusal = `Namespace "ns" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted`
	bad, good := namespaceWith(t, "pod-security.kubernetes.io/enforce: strict"), namespaceWith(t, "")
	admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Create(bad)), refusal)
	admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Update(bad, good)), refusal)
	admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Update(good, bad)), "")
	admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Update(bad, bad)), "")
}

// checkExisting returns the warnings when a namespace with count privileged pods starts to enforce baseline.
func checkExisting(t *testing.T, ctx context.Context, count int) []string {
	t.Helper()
	store := objectstest.New()
	for i := range count {
		pod := podOf(t, privilegedPod)
		pod.Name = fmt.Sprintf("p-%05d", i)
		store.Put(corev1.Resource("pods"), pod)
	}
	var warnings []string
	write := admissiontest.Update(namespaceWith(t, "pod-security.kubernetes.io/enforce: baseline"), namespaceWith(t, ""))
	write.Warn = func(text string) { warnings = append(warnings, text) }
	if err := newPlugin(t, store, "").(admission.Validator).Validate(ctx, write); err != nil {
		t.Fatal(err)
	}
	return warnings
}

func TestExistingPods(t *testing.T) {
	expired, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	const title = `existing pods in namespace "ns" violate the new PodSecurity enforce level "baseline:latest"`
	for _, c := range []struct {
		name string
		ctx  context.Context
		pods int
		want []string
	}{
		{"none", t.Context(), 0, nil},
		{"one", t.Context(), 1, []string{title, "p-00000: privileged"}},
		{"two", t.Context(), 2, []string{title, "p-00000 (and 1 other pod): privileged"}},
		{"as many as are checked", t.Context(), 3000, []string{title, "p-00000 (and 2999 other pods): privileged"}},
		{"more", t.Context(), 3001, []string{"new PodSecurity enforce level only checked against the first 3000 of 3001 existing pods", title, "p-00000 (and 2999 other pods): privileged"}},
		{"no time", expired, 3, []string{"new PodSecurity enforce level only checked against the first 1 of 3 existing pods", title, "p-00000: privileged"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := checkExisting(t, c.ctx, c.pods); !slices.Equal(got, c.want) {
				t.Errorf("warned with %q, want %q", got, c.want)
			}
		})
	}
}

func TestParseConfig(t *testing.T) {
	const head = "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n"
	for _, c := range []struct{ name, text, err string }{
		{"nothing", "", ""},
		{"all of it", exemptions, ""},
		{"an older version", strings.Replace(exemptions, "/v1\n", "/v1beta1\n", 1), ""},
		{"an unknown version", strings.Replace(exemptions, "/v1\n", "/v2\n", 1), `expected a PodSecurityConfiguration of pod-security.admission.config.k8s.io/v1, got kind "PodSecurityConfiguration" of apiVersion "pod-security.admission.config.k8s.io/v2"`},
		{"another kind", "kind: Pod", `expected a PodSecurityConfiguration of pod-security.admission.config.k8s.io/v1, got kind "Pod" of apiVersion ""`},
		{"an unknown field", head + "default: {}", `unknown field "default"`},
		{"an unknown level", head + "defaults: {enforce: strict}", `defaults.enforce: Invalid value: "strict": must be one of privileged, baseline, restricted`},
		{"an unknown level's version", head + "defaults: {warn-version: v2}", `defaults.warn-version: Invalid value: "v2": must be "latest" or "v1.x"`},
		{"no namespace's name", head + "exemptions: {namespaces: [A]}", `exemptions.namespaces[0]: Invalid value: "A": `},
		{"a name twice", head + "exemptions: {runtimeClasses: [a, a]}", `exemptions.runtimeClasses[1]: Duplicate value: "a"`},
		{"no user", head + `exemptions: {usernames: [""]}`, `exemptions.usernames[0]: Invalid value: "": username must not be empty`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := podsecurity.ParseConfig([]byte(c.text))
			if (c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("the error is %v, want %s", err, c.err)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	store, _ := enforced(t, "baseline")
	config, err := podsecurity.ParseConfig([]byte(exemptions))
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	plugin := podsecurity.New(store, config, registry)
	exempt := podOf(t, plainPod)
	exempt.Namespace = "exempt"
	for _, pod := range []*corev1.Pod{podOf(t, plainPod), podOf(t, privilegedPod), exempt} {
		through(t, plugin, admissiontest.Create(pod))
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, label := range m.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			if count := m.GetCounter().GetValue(); count > 0 {
				got = append(got, fmt.Sprintf("%s %s %v", family.GetName(), strings.Join(labels, " "), count))
			}
		}
	}
	// The labels are in the order of their names.
	want := []string{
		"pod_security_evaluations_total allow enforce baseline v1.30 create pod  1",
		"pod_security_evaluations_total deny audit restricted latest create pod  2",
		"pod_security_evaluations_total deny enforce baseline v1.30 create pod  1",
		"pod_security_evaluations_total deny warn restricted latest create pod  1",
		"pod_security_exemptions_total create pod  1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("counted\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
