package podtopologylabels_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/podtopologylabels"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
)

func TestLabels(t *testing.T) {
	store := objectstest.New()
	for _, node := range []string{
		`{metadata: {name: here, labels: {topology.kubernetes.io/zone: z, topology.kubernetes.io/region: r, topology.kubernetes.io/arbitrary: a, other: o}}}`,
		`{metadata: {name: zoned, labels: {topology.kubernetes.io/zone: z}}}`,
		`{metadata: {name: bare}}`,
	} {
		store.Put(corev1.Resource("nodes"), admissiontest.Parse(t, &corev1.Node{}, node))
	}
	for _, c := range []struct{ node, given, want string }{
		{"here", `{}`, `{topology.kubernetes.io/zone: z, topology.kubernetes.io/region: r}`},
		{"here", `{a: b, topology.kubernetes.io/zone: mine}`, `{a: b, topology.kubernetes.io/zone: z, topology.kubernetes.io/region: r}`},
		{"zoned", `{topology.kubernetes.io/region: mine}`, `{topology.kubernetes.io/region: mine, topology.kubernetes.io/zone: z}`},
		{"bare", `{a: b}`, `{a: b}`},
		{"none", `{a: b}`, `{a: b}`},
		{"", `{a: b}`, `{a: b}`},
	} {
		t.Run(c.node, func(t *testing.T) {
			meta := *admissiontest.Parse(t, &metav1.ObjectMeta{}, `{labels: `+c.given+`}`)
			pod := &corev1.Pod{ObjectMeta: *meta.DeepCopy(), Spec: corev1.PodSpec{NodeName: c.node}}
			binding := &corev1.Binding{ObjectMeta: *meta.DeepCopy(), Target: corev1.ObjectReference{Kind: "Node", Name: c.node}}
			other := &corev1.Binding{ObjectMeta: *meta.DeepCopy(), Target: corev1.ObjectReference{Kind: "Machine", Name: c.node}}
			plugin, want := podtopologylabels.New(store), admissiontest.Parse(t, &metav1.ObjectMeta{}, `{labels: `+c.want+`}`)
			bind := func(b *corev1.Binding) error {
				return admissiontest.Through(t, plugin, admissiontest.Subresource(admissiontest.Create(b), pod, "binding"))
			}
			admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Create(pod)), "")
			admissiontest.Expect(t, bind(binding), "")
			admissiontest.Expect(t, bind(other), "")
			for _, obj := range []catalog.Object{pod, binding} {
				admissiontest.Same(t, obj.GetLabels(), want.Labels)
			}
			admissiontest.Same(t, other.Labels, meta.Labels)
		})
	}
}

func TestUpdatesStayAsTheyAre(t *testing.T) {
	store := objectstest.New()
	store.Put(corev1.Resource("nodes"), admissiontest.Parse(t, &corev1.Node{}, `{metadata: {name: here, labels: {topology.kubernetes.io/zone: z}}}`))
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "here"}}
	admissiontest.Expect(t, admissiontest.Through(t, podtopologylabels.New(store), admissiontest.Update(pod, pod)), "")
	if len(pod.Labels) > 0 {
		t.Errorf("an update has set %v", pod.Labels)
	}
}
