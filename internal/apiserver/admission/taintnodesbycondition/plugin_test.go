package taintnodesbycondition_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/taintnodesbycondition"
)

func TestNewNodesAreTainted(t *testing.T) {
	for _, c := range []struct{ name, given, want string }{
		{"a new node", ``, `{key: node.kubernetes.io/not-ready, effect: NoSchedule}`},
		{"one that has the taint", `{key: node.kubernetes.io/not-ready, value: x, effect: NoSchedule}`, `{key: node.kubernetes.io/not-ready, value: x, effect: NoSchedule}`},
		{"one with other taints", `{key: node.kubernetes.io/not-ready, effect: NoExecute}`,
			`{key: node.kubernetes.io/not-ready, effect: NoExecute}, {key: node.kubernetes.io/not-ready, effect: NoSchedule}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := admissiontest.Parse(t, &corev1.Node{}, `{spec: {taints: [`+c.given+`]}}`)
			admissiontest.Expect(t, admissiontest.Through(t, taintnodesbycondition.New(), admissiontest.Create(node)), "")
			admissiontest.Same(t, node, admissiontest.Parse(t, &corev1.Node{}, `{spec: {taints: [`+c.want+`]}}`))
		})
	}
	old := &corev1.Node{}
	admissiontest.Expect(t, admissiontest.Through(t, taintnodesbycondition.New(), admissiontest.Update(old, old)), "")
	if len(old.Spec.Taints) > 0 {
		t.Error("an update tainted the node")
	}
}
