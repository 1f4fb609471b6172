package alwaysdeny_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/alwaysdeny"
)

func TestEverythingIsDenied(t *testing.T) {
	const refusal = `configmaps "c" is forbidden: admission control is denying all modifications`
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	for _, a := range []*admission.Attributes{admissiontest.Create(m), admissiontest.Update(m, m), admissiontest.Delete(m)} {
		admissiontest.Expect(t, admissiontest.Through(t, alwaysdeny.New(), a), refusal)
		admissiontest.Expect(t, alwaysdeny.New().(admission.Validator).Validate(t.Context(), a), refusal)
	}
}
