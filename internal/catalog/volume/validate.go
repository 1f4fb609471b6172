package volume

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

// Validate validates the volumes of a pod and returns the sources of the valid ones by name. podMeta may be nil, or lack a
// name, if the volumes are those of a template.
func Validate(volumes []corev1.Volume, podMeta *metav1.ObjectMeta, path *field.Path) (map[string]corev1.VolumeSource, field.ErrorList) {
	if len(volumes) == 0 {
		return map[string]corev1.VolumeSource{}, nil
	}
	pod := ""
	if podMeta != nil {
		pod = podMeta.Name
	}
	sound := make(map[string]corev1.VolumeSource, len(volumes))
	list := check.At(path)
	for i := range volumes {
		v := &podVolume{Volume: &volumes[i], pod: pod}
		at := list.Item("", i)
		before := len(list.Errors())
		oneOf(podKinds, v, at)
		checkName(at, v.Name, sound)
		if len(list.Errors()) == before {
			sound[v.Name] = v.VolumeSource
		}
		if c := v.PersistentVolumeClaim; c != nil && claimsOwnEphemeral(c.ClaimName, pod, volumes) {
			at.Child("persistentVolumeClaim").Invalid("claimName", c.ClaimName, "must not reference a PVC that gets created for an ephemeral volume")
		}
	}
	return sound, list.Errors()
}

func checkName(at *check.Part, name string, others map[string]corev1.VolumeSource) {
	if name == "" {
		at.Required("name", "")
	} else {
		at.Format("name", name, validation.IsDNS1123Label)
	}
	if _, taken := others[name]; taken {
		at.Add(field.Duplicate(at.Path("name"), name))
	}
}

// claimsOwnEphemeral reports whether a claim is one that will be created for an ephemeral volume of the same pod. Without
// the pod's name that is unknown, and it returns false.
func claimsOwnEphemeral(claim, pod string, volumes []corev1.Volume) bool {
	if pod == "" {
		return false
	}
	name, ok := strings.CutPrefix(claim, pod+"-")
	for i := range volumes {
		if ok && volumes[i].Ephemeral != nil && volumes[i].Name == name {
			return true
		}
	}
	return false
}

// A kind is one of the sources that H, the holder of a volume source, may set. It validates that source if the holder
// sets it, refuses it if another source was found before (taken), and reports whether it is set.
type kind[H any] func(holder *H, at *check.Part, taken bool) bool

// oneOf checks that a holder sets exactly one source, and validates it.
func oneOf[H any](kinds []kind[H], holder *H, at *check.Part) {
	taken := false
	for _, k := range kinds {
		if k(holder, at, taken) {
			taken = true
		}
	}
	if !taken {
		at.Required("", "must specify a volume type")
	}
}

// source returns the usual kind: a field of the holder, whose errors are at a path of the same name.
func source[H, S any](name string, get func(*H) *S, rules func(*check.Part, *S)) kind[H] {
	return oddSource(name, name, get, rules)
}

// oddSource returns a kind that upstream's error messages name differently when it is refused as a second source
// and when it is itself invalid.
func oddSource[H, S any](second, name string, get func(*H) *S, rules func(*check.Part, *S)) kind[H] {
	return func(holder *H, at *check.Part, taken bool) bool {
		s := get(holder)
		if s == nil {
			return false
		}
		if taken {
			refuseSecond(at, second)
		} else {
			rules(at.Child(name), s)
		}
		return true
	}
}

func refuseSecond(at *check.Part, name string) {
	at.Forbidden(name, "may not specify more than 1 volume type")
}
