package storageobjectinuseprotection_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/storageobjectinuseprotection"
	"skiff/internal/catalog"
)

func TestFinalizers(t *testing.T) {
	for _, c := range []struct {
		name string
		obj  catalog.Object
		has  []string
		want []string
	}{
		{"volume", &corev1.PersistentVolume{}, nil, []string{"kubernetes.io/pv-protection"}},
		{"claim with another", &corev1.PersistentVolumeClaim{}, []string{"example.com/x"}, []string{"example.com/x", "kubernetes.io/pvc-protection"}},
		{"claim that has it", &corev1.PersistentVolumeClaim{}, []string{"kubernetes.io/pvc-protection"}, []string{"kubernetes.io/pvc-protection"}},
		{"volume attributes class", &storagev1.VolumeAttributesClass{}, nil, []string{"kubernetes.io/vac-protection"}},
		{"storage class", &storagev1.StorageClass{}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.obj.SetFinalizers(c.has)
			admissiontest.Expect(t, admissiontest.Through(t, storageobjectinuseprotection.New(), admissiontest.Create(c.obj)), "")
			admissiontest.Same(t, c.obj.GetFinalizers(), c.want)
		})
	}
}
