package replicaset

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

// newPod makes a pod of a set's template.
func newPod(s set, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: prefix(s.GetName()), Name: name, Namespace: s.GetNamespace(),
			Labels: maps.Clone(s.template.Labels), Annotations: maps.Clone(s.template.Annotations), Finalizers: slices.Clone(s.template.Finalizers),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.Object, s.kind)},
		},
		Spec: *s.template.Spec.DeepCopy(),
	}
}

// prefix is what the names of a set's pods begin with: its own name, and a dash if it still fits.
func prefix(name string) string {
	if p := name + "-"; len(validation.NameIsDNSSubdomain(p, true)) == 0 {
		return p
	}
	return name
}

const (
	suffixLength = 5
	prefixLength = 63 - suffixLength // as the server keeps generated names
)

// podNames chooses names for a set's next pods. They look as the server would generate them, but follow from the version of the set that is
// acted on: when a loop ends in the middle of its work and the next begins while requests are still under way, both ask for the same pods,
// and none is created twice. Once the set's status tells of them, its version, and so the names, are others.
func podNames(s set, n int, taken func(string) bool) []string {
	base := prefix(s.GetName())
	base = base[:min(len(base), prefixLength)]
	names := make([]string, 0, n)
	seen := make(map[string]bool, n)
	for i := 0; len(names) < n; i++ {
		name := base + suffix(string(s.GetUID())+"/"+s.GetResourceVersion()+"/"+strconv.Itoa(i))
		if !seen[name] && !taken(name) {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// suffix is what text comes down to, in the characters that generated names are made of.
func suffix(text string) string {
	sum := sha256.Sum256([]byte(text))
	for i := range sum {
		sum[i] %= 27 // as many as there are of them, and no more than ASCII
	}
	return rand.SafeEncodeString(string(sum[:suffixLength]))
}

// active pods count: they run, or are to.
func active(pod *corev1.Pod) bool { return !ended(pod) && pod.DeletionTimestamp == nil }

// ended pods will not run again.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// readySince says whether a pod is ready, and since when.
func readySince(pod *corev1.Pod) (metav1.Time, bool) {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.LastTransitionTime, c.Status == corev1.ConditionTrue
		}
	}
	return metav1.Time{}, false
}
