package volume_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/catalog/volume"
)

// What was stored before a rule was introduced may stay as it is.

func TestVolumeKeepsInvalidLabelValues(t *testing.T) {
	old := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/x"}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "k", Operator: corev1.NodeSelectorOpIn, Values: []string{"no label"}}},
		}}}},
	}}
	if errs := volume.PersistentVolume.Validate(old); len(errs) != 1 {
		t.Errorf("on create: %v", errs)
	}
	if errs := volume.PersistentVolume.ValidateUpdate(old.DeepCopy(), old); len(errs) != 0 {
		t.Errorf("on update: %v", errs)
	}
}

func TestClaimKeepsWhatItHas(t *testing.T) {
	group := "Not_A_Group"
	old := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		Selector:    &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: metav1.LabelSelectorOpIn, Values: []string{"no label"}}}},
		DataSource:  &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "K", Name: "n"}, // from before dataSourceRef
	}}
	if errs := volume.PersistentVolumeClaim.Validate(old); len(errs) != 2 {
		t.Errorf("on create: %v", errs)
	}
	new := old.DeepCopy()
	volume.PersistentVolumeClaim.PrepareUpdate(new, old)
	if new.Spec.DataSourceRef == nil || old.Spec.DataSourceRef != nil {
		t.Error("the reference must be filled in, in the new claim alone")
	}
	if errs := volume.PersistentVolumeClaim.ValidateUpdate(new, old); len(errs) != 0 {
		t.Errorf("on update: %v", errs)
	}
}

func BenchmarkPodVolumes(b *testing.B) {
	expiry, mode := int64(3607), int32(420)
	volumes := []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}},
		{Name: "kube-api-access-abcde", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &expiry, Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
		}}}},
	}
	meta := &metav1.ObjectMeta{Name: "pod"}
	b.ReportAllocs()
	for b.Loop() {
		for i := range volumes {
			volume.Default(&volumes[i])
		}
		if _, errs := volume.Validate(volumes, meta, nil); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}
