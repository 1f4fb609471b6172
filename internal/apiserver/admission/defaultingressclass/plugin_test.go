package defaultingressclass_test

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/defaultingressclass"
	"skiff/internal/apiserver/objects/objectstest"
)

func TestDefaultClass(t *testing.T) {
	const (
		old   = `{metadata: {name: old, creationTimestamp: "2026-01-01T00:00:00Z", annotations: {ingressclass.kubernetes.io/is-default-class: "true"}}}`
		newer = `{metadata: {name: newer, creationTimestamp: "2026-02-01T00:00:00Z", annotations: {ingressclass.kubernetes.io/is-default-class: "true"}}}`
		not   = `{metadata: {name: not}}`
	)
	for _, c := range []struct {
		name    string
		classes []string
		ingress string
		want    *string
	}{
		{"no default", []string{not}, `{}`, nil},
		{"one default", []string{not, old}, `{}`, ptr.To("old")},
		{"the newest of several", []string{newer, old}, `{}`, ptr.To("newer")},
		{"the ingress names one", []string{old}, `{spec: {ingressClassName: mine}}`, ptr.To("mine")},
		{"the ingress names one in the annotation", []string{old}, `{metadata: {annotations: {kubernetes.io/ingress.class: ""}}}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := objectstest.New()
			plugin := defaultingressclass.New(s)
			for _, class := range c.classes {
				s.Put(networkingv1.Resource("ingressclasses"), admissiontest.Parse(t, &networkingv1.IngressClass{}, class))
			}
			ingress := admissiontest.Parse(t, &networkingv1.Ingress{}, c.ingress)
			admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Create(ingress)), "")
			admissiontest.Same(t, ingress.Spec.IngressClassName, c.want)
		})
	}
}
