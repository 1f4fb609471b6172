package podnodeselector_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/podnodeselector"
	"skiff/internal/apiserver/objects/objectstest"
)

const config = `podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: "env=test", narrow: "env=test,infra=fedora"}`

func TestSelectors(t *testing.T) {
	const (
		conflict = `pods "p" is forbidden: pod node label selector conflicts with its namespace node label selector`
		narrow   = `pods "p" is forbidden: pod node label selector labels conflict with its namespace whitelist`
	)
	for _, c := range []struct{ name, namespace, annotation, pod, want, refusal string }{
		{"the default", "a", "-", `{}`, `{env: test}`, ""},
		{"the default and its own", "a", "-", `{disk: ssd}`, `{disk: ssd, env: test}`, ""},
		{"one against the default", "a", "-", `{env: dev}`, "", conflict},
		{"that of the namespace", "a", "infra=fedora", `{disk: ssd}`, `{disk: ssd, infra: fedora}`, ""},
		{"the same as that of the namespace", "a", "infra=fedora", `{infra: fedora}`, `{infra: fedora}`, ""},
		{"one against that of the namespace", "a", "infra=fedora", `{infra: arch}`, "", conflict},
		{"a namespace that has the empty one", "a", "", `{env: dev}`, `{env: dev}`, ""},
		{"what the namespace may have", "narrow", "infra=fedora", `{env: test}`, `{env: test, infra: fedora}`, ""},
		{"what the namespace may not have", "narrow", "-", `{disk: ssd}`, "", narrow},
		{"a value that the namespace may not have", "narrow", "infra=fedora", `{env: dev}`, "", narrow},
		{"an annotation of nonsense", "a", "infra", `{}`, "", `invalid selector: [infra]`},
		{"no such namespace", "none", "-", `{}`, "", `Internal error occurred: namespace none does not exist`},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := objectstest.New()
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: strings.Replace(c.namespace, "none", "another", 1)}}
			if c.annotation != "-" {
				namespace.Annotations = map[string]string{"scheduler.alpha.kubernetes.io/node-selector": c.annotation}
			}
			store.Put(corev1.Resource("namespaces"), namespace)
			parsed, err := podnodeselector.ParseConfig([]byte(config))
			if err != nil {
				t.Fatal(err)
			}
			pod := admissiontest.Parse(t, &corev1.Pod{}, `{metadata: {namespace: `+c.namespace+`, name: p}, spec: {containers: [], nodeSelector: `+c.pod+`}}`)
			admissiontest.Expect(t, admissiontest.Through(t, podnodeselector.New(store, parsed), admissiontest.Create(pod)), c.refusal)
			if c.refusal == "" {
				admissiontest.Same(t, pod.Spec.NodeSelector, admissiontest.Parse(t, &corev1.PodSpec{}, `{containers: [], nodeSelector: `+c.want+`}`).NodeSelector)
			}
		})
	}
}

func TestOtherWritesStayAsTheyAre(t *testing.T) {
	parsed, err := podnodeselector.ParseConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	plugin, pod := podnodeselector.New(objectstest.New(), parsed), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}}
	admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Update(pod, pod)), "")
	admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Subresource(admissiontest.Create(pod), pod, "eviction")), "")
	if pod.Spec.NodeSelector != nil {
		t.Errorf("the node selector is %v", pod.Spec.NodeSelector)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []struct{ text, err string }{
		{"", ""},
		{config, ""},
		{`{}`, ""},
		{`podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: "a"}`, `podNodeSelectorPluginConfig.clusterDefaultNodeSelector: Invalid value: "a": invalid selector: [a]`},
		{`podNodeSelectorPluginConfig: {a: "b=c,d", B: "c=d"}`, `[podNodeSelectorPluginConfig: Invalid value: "B": must be clusterDefaultNodeSelector or the name of a namespace: a lowercase RFC 1123 label`},
		{`podNodeSelectorPluginConfig: {a: {}}`, `failed to decode the podNodeSelectorPluginConfig: `},
		{`podNodeSelector: {}`, `unknown field "podNodeSelector"`},
	} {
		_, err := podnodeselector.ParseConfig([]byte(c.text))
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: the error is %v, want one that has %s", c.text, err, c.err)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(config))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = podnodeselector.ParseConfig(text) })
}
