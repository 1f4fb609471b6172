package kubelet

import (
	"context"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/kubelet/kubelettest"
	"skiff/internal/kubelet/volume"
)

// measuredVolumes are volumes of which one is of a claim.
type measuredVolumes struct{ *kubelettest.Volumes }

func (measuredVolumes) ClaimUsage(context.Context, types.UID) ([]volume.Usage, error) {
	return []volume.Usage{{Volume: "disk", Capacity: 100, Used: 40, Available: 60, InodesLimit: 7, InodesFree: 5, InodesUsed: 2}, {Volume: "inline", Capacity: 9}}, nil
}

// What is used of a claim's volume is in the kubelet's metrics, under the names of the claim.
func TestVolumeStats(t *testing.T) {
	w := newFixture(t)
	w.stop()
	w.start(func(o *Options) { o.Volumes = measuredVolumes{w.volumes} })
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("100")}
	if _, err := w.client.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.create("web", "{containers: [{name: a, image: nginx}], volumes: [{name: disk, persistentVolumeClaim: {claimName: data}}]}")
	w.await("web", ready)
	families, err := w.kubelet.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if l := m.GetLabel(); len(l) == 2 && l[0].GetName() == "namespace" && l[1].GetName() == "persistentvolumeclaim" {
				got[fmt.Sprintf("%s %s/%s", f.GetName()[len("kubelet_volume_stats_"):], l[0].GetValue(), l[1].GetValue())] = m.GetGauge().GetValue()
			}
		}
	}
	want := map[string]float64{"capacity_bytes default/data": 100, "used_bytes default/data": 40, "available_bytes default/data": 60, "inodes default/data": 7,
		"inodes_free default/data": 5, "inodes_used default/data": 2}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
