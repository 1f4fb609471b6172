package persistentvolumeclaimresize_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/persistentvolumeclaimresize"
	"skiff/internal/apiserver/objects/objectstest"
)

func TestResize(t *testing.T) {
	const (
		unbound     = `persistentvolumeclaims "c" is forbidden: Only bound persistent volume claims can be expanded`
		unsupported = `persistentvolumeclaims "c" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize`
	)
	claim := func(class, size, phase string) string {
		return `{metadata: {name: c, namespace: n}, spec: {` + class + `, resources: {requests: {storage: ` + size + `}}}, status: {phase: ` + phase + `}}`
	}
	for _, c := range []struct {
		name     string
		old, new string
		want     string
	}{
		{"expansion is allowed", claim("storageClassName: fast", "1Gi", "Bound"), claim("storageClassName: fast", "2Gi", "Bound"), ""},
		{"the same size in other words", claim("storageClassName: slow", "1Gi", "Bound"), claim("storageClassName: slow", "1024Mi", "Bound"), ""},
		{"less", claim("storageClassName: slow", "2Gi", "Bound"), claim("storageClassName: slow", "1Gi", "Bound"), ""},
		{"not bound", claim("storageClassName: fast", "1Gi", "Pending"), claim("storageClassName: fast", "2Gi", "Bound"), unbound},
		{"a class that does not say", claim("storageClassName: slow", "1Gi", "Bound"), claim("storageClassName: slow", "2Gi", "Bound"), unsupported},
		{"a class that forbids it", claim("storageClassName: never", "1Gi", "Bound"), claim("storageClassName: never", "2Gi", "Bound"), unsupported},
		{"a class that is gone", claim("storageClassName: gone", "1Gi", "Bound"), claim("storageClassName: gone", "2Gi", "Bound"), unsupported},
		{"no class", claim(`storageClassName: ""`, "1Gi", "Bound"), claim(`storageClassName: ""`, "2Gi", "Bound"), unsupported},
		{"another class", claim("storageClassName: slow", "1Gi", "Bound"), claim("storageClassName: fast", "2Gi", "Bound"), unsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := objectstest.New()
			for _, class := range []string{`{metadata: {name: fast}, allowVolumeExpansion: true}`, `{metadata: {name: slow}}`, `{metadata: {name: never}, allowVolumeExpansion: false}`} {
				s.Put(storagev1.Resource("storageclasses"), admissiontest.Parse(t, &storagev1.StorageClass{}, class))
			}
			a := admissiontest.Update(admissiontest.Parse(t, &corev1.PersistentVolumeClaim{}, c.new), admissiontest.Parse(t, &corev1.PersistentVolumeClaim{}, c.old))
			admissiontest.Expect(t, admissiontest.Through(t, persistentvolumeclaimresize.New(s), a), c.want)
		})
	}
}
