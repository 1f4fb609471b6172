package podtolerationrestriction_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/podtolerationrestriction"
	"skiff/internal/apiserver/objects/objectstest"
)

const (
	head    = "apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1\nkind: Configuration\n"
	ours    = `{key: k, operator: Equal, value: v, effect: NoSchedule}`
	another = `{key: k, operator: Equal, value: w, effect: NoSchedule}`
	all     = `{key: k, operator: Exists}`
	memory  = `{key: node.kubernetes.io/memory-pressure, operator: Exists, effect: NoSchedule}`
)

func json(yaml string) string { // the annotations are JSON
	for _, word := range []string{"key", "operator", "Equal", "Exists", "value", "effect", "NoSchedule"} {
		yaml = strings.ReplaceAll(yaml, word, `"`+word+`"`)
	}
	for _, word := range []string{"k", "v", "w"} {
		yaml = strings.ReplaceAll(yaml, ": "+word+",", `: "`+word+`",`)
	}
	return "[" + yaml + "]"
}

func TestTolerations(t *testing.T) {
	const (
		inNamespace = `pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist`
		inCluster   = `pod tolerations (possibly merged with namespace default tolerations) conflict with its cluster whitelist`
		burstable   = `containers: [{name: c, resources: {requests: {cpu: 1}}}]`
	)
	for _, c := range []struct {
		name, config, defaults, whitelist, pod string // "-" is no annotation
		want, refusal                          string
	}{
		{"nothing", "", "-", "-", ``, ``, ""},
		{"the cluster's defaults", "default: [" + ours + "]", "-", "-", ``, ours, ""},
		{"the namespace's defaults", "default: [" + another + "]", json(ours), "-", ``, ours, ""},
		{"a namespace with empty defaults", "default: [" + another + "]", "", "-", ``, ``, ""},
		{"defaults that the pod covers", "default: [" + ours + "]", "-", "-", `tolerations: [` + all + `]`, all, ""},
		{"defaults that cover the pod's", "default: [" + all + "]", "-", "-", `tolerations: [` + ours + `]`, all, ""},
		{"defaults beside the pod's", "default: [" + ours + "]", "-", "-", `tolerations: [` + another + `]`, another + ", " + ours, ""},
		{"what is not BestEffort", "", "-", "-", burstable, memory, ""},
		{"what says that it is not BestEffort", "default: [" + ours + "]", "-", "-", burstable + `, tolerations: [` + ours + `]`, ours + ", " + memory, ""},
		{"allowed in the cluster", "whitelist: [" + all + "]", "-", "-", `tolerations: [` + ours + `]`, ours, ""},
		{"not allowed in the cluster", "whitelist: [" + ours + "]", "-", "-", `tolerations: [` + another + `]`, "", inCluster},
		{"allowed in the namespace", "whitelist: [" + ours + "]", "-", json(another), `tolerations: [` + another + `]`, another, ""},
		{"not allowed in the namespace", "whitelist: [" + another + "]", "-", json(ours), `tolerations: [` + another + `]`, "", inNamespace},
		{"defaults that are not allowed", "default: [" + another + "]", "-", json(ours), ``, "", inNamespace},
		{"a namespace that allows all", "whitelist: [" + ours + "]", "-", "", `tolerations: [` + another + `]`, another, ""},
		{"memory pressure that is not allowed", "", "-", json(ours), burstable, "", inNamespace},
		{"an annotation of nonsense", "", "{", "-", ``, "", "unexpected end of JSON input"},
	} {
		t.Run(c.name, func(t *testing.T) {
			parsed, err := podtolerationrestriction.ParseConfig([]byte(head + c.config))
			if err != nil {
				t.Fatal(err)
			}
			store := objectstest.New()
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Annotations: map[string]string{}}}
			for key, value := range map[string]string{"defaultTolerations": c.defaults, "tolerationsWhitelist": c.whitelist} {
				if value != "-" {
					namespace.Annotations["scheduler.alpha.kubernetes.io/"+key] = value
				}
			}
			store.Put(corev1.Resource("namespaces"), namespace)
			pod := admissiontest.Parse(t, &corev1.Pod{}, `{metadata: {namespace: ns, name: p}, spec: {`+c.pod+`}}`)
			admissiontest.Expect(t, admissiontest.Through(t, podtolerationrestriction.New(store, parsed), admissiontest.Create(pod)), c.refusal)
			if c.refusal == "" {
				admissiontest.Same(t, corev1.PodSpec{Tolerations: pod.Spec.Tolerations}, admissiontest.Parse(t, &corev1.PodSpec{}, `{tolerations: [`+c.want+`]}`))
			}
		})
	}
}

func TestUpdatesGetNoDefaults(t *testing.T) {
	parsed, err := podtolerationrestriction.ParseConfig([]byte(head + "default: [" + ours + "]\nwhitelist: [" + ours + "]"))
	if err != nil {
		t.Fatal(err)
	}
	store := objectstest.New()
	store.Put(corev1.Resource("namespaces"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})
	plugin := podtolerationrestriction.New(store, parsed)
	update := func(spec string) (*corev1.Pod, *admission.Attributes) {
		pod := admissiontest.Parse(t, &corev1.Pod{}, `{metadata: {namespace: ns, name: p}, spec: {containers: [], `+spec+`}}`)
		return pod, admissiontest.Update(pod, &corev1.Pod{})
	}
	pod, a := update("")
	admissiontest.Expect(t, admissiontest.Through(t, plugin, a), "")
	if len(pod.Spec.Tolerations) > 0 {
		t.Errorf("the tolerations are %v", pod.Spec.Tolerations)
	}
	pod, a = update("tolerations: [" + another + "]")
	admissiontest.Expect(t, admissiontest.Through(t, plugin, a), "pod tolerations (possibly merged with namespace default tolerations) conflict with its cluster whitelist")
	admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Subresource(a, pod, "status")), "")
}

func TestConfig(t *testing.T) {
	for _, c := range []struct{ text, err string }{
		{"", ""},
		{head, ""},
		{head + "default: [{operator: Exists}]", ""},
		{head + "default: [{operator: Lt, key: a}]", `invalid config: [podtolerationrestriction.default[0].operator: Unsupported value: "Lt"`},
		{head + "whitelist: [{value: a}]", `podtolerationrestriction.whitelist[0].operator: Invalid value: "": operator must be Exists when ` + "`key`" + ` is empty`},
		{head + "blacklist: []", `unknown field "blacklist"`},
		{"kind: Configuration", `expected a Configuration of podtolerationrestriction.admission.k8s.io/v1alpha1, got kind "Configuration" of apiVersion ""`},
		{"[", `failed to decode the Configuration`},
	} {
		_, err := podtolerationrestriction.ParseConfig([]byte(c.text))
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: the error is %v, want one that has %s", c.text, err, c.err)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(head + "default: [" + ours + "]"))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = podtolerationrestriction.ParseConfig(text) })
}
