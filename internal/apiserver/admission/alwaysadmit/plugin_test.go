package alwaysadmit_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/alwaysadmit"
)

func TestEverythingIsAdmitted(t *testing.T) {
	pod := &corev1.Pod{}
	admissiontest.Expect(t, admissiontest.Through(t, alwaysadmit.New(), admissiontest.Create(pod)), "")
	admissiontest.Same(t, pod, &corev1.Pod{})
}
