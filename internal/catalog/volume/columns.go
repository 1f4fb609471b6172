package volume

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func storageOf(list corev1.ResourceList) string {
	size := list[corev1.ResourceStorage]
	return size.String()
}

// shortModes formats access modes as their abbreviations, in kubectl's order.
func shortModes(modes []corev1.PersistentVolumeAccessMode) string {
	var short []string
	for _, m := range []struct {
		mode corev1.PersistentVolumeAccessMode
		name string
	}{{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(modes, m.mode) {
			short = append(short, m.name)
		}
	}
	return strings.Join(short, ",")
}

func phase(phase string, deleted *metav1.Time) string {
	if deleted != nil {
		return "Terminating"
	}
	return phase
}

func orUnset[S ~string](s *S) string {
	if s == nil {
		return "<unset>"
	}
	return string(*s)
}
