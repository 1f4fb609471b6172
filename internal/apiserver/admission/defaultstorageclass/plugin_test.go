package defaultstorageclass_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/defaultstorageclass"
	"skiff/internal/apiserver/objects/objectstest"
)

func TestDefaultClass(t *testing.T) {
	const (
		old   = `{metadata: {name: old, creationTimestamp: "2026-01-01T00:00:00Z", annotations: {storageclass.kubernetes.io/is-default-class: "true"}}}`
		newer = `{metadata: {name: newer, creationTimestamp: "2026-02-01T00:00:00Z", annotations: {storageclass.beta.kubernetes.io/is-default-class: "true"}}}`
		twin  = `{metadata: {name: a-twin, creationTimestamp: "2026-02-01T00:00:00Z", annotations: {storageclass.kubernetes.io/is-default-class: "true"}}}`
		not   = `{metadata: {name: not, creationTimestamp: "2026-03-01T00:00:00Z", annotations: {storageclass.kubernetes.io/is-default-class: "false"}}}`
	)
	for _, c := range []struct {
		name    string
		classes []string
		claim   string
		want    *string
	}{
		{"no default", []string{not}, `{}`, nil},
		{"one default", []string{not, old}, `{}`, ptr.To("old")},
		{"the newest of several", []string{old, newer}, `{}`, ptr.To("newer")},
		{"the first by name of the newest", []string{old, newer, twin}, `{}`, ptr.To("a-twin")},
		{"the claim names one", []string{old}, `{spec: {storageClassName: mine}}`, ptr.To("mine")},
		{"the claim wants none", []string{old}, `{spec: {storageClassName: ""}}`, ptr.To("")},
		{"the claim names one in the annotation", []string{old}, `{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: mine}}}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := objectstest.New()
			plugin := defaultstorageclass.New(s)
			for _, class := range c.classes {
				s.Put(storagev1.Resource("storageclasses"), admissiontest.Parse(t, &storagev1.StorageClass{}, class))
			}
			claim := admissiontest.Parse(t, &corev1.PersistentVolumeClaim{}, c.claim)
			admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Create(claim)), "")
			admissiontest.Same(t, claim.Spec.StorageClassName, c.want)
		})
	}
}
