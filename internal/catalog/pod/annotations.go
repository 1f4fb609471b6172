package pod

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

const (
	appArmorPrefix = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	seccompPrefix  = corev1.SeccompContainerAnnotationKeyPrefix
)

// checkAnnotations validates the annotations that Kubernetes acts on in a pod, or once did. p is the part that holds them.
func checkAnnotations(p *check.Part, annotations map[string]string, spec *corev1.PodSpec, allow leniency) {
	if len(annotations) == 0 {
		return
	}
	at := func(key string) *field.Path { return p.Path("annotations").Key(key) }
	if value, mirror := annotations[corev1.MirrorPodAnnotationKey]; mirror && spec.NodeName == "" {
		p.Add(field.Invalid(at(corev1.MirrorPodAnnotationKey), value, "must set spec.nodeName if mirror pod annotation is set"))
	}
	if text := annotations[corev1.TolerationsAnnotationKey]; text != "" {
		annotatedTolerations(p.Child("annotations"), text, allow)
	}
	if !allow.deletionCost && !validDeletionCost(annotations) {
		p.Add(field.Invalid(at(corev1.PodDeletionCost), annotations[corev1.PodDeletionCost], "must be a 32bit integer"))
	}
	if profile, found := annotations[corev1.SeccompPodAnnotationKey]; found {
		annotatedSeccomp(p.Child("annotations"), corev1.SeccompPodAnnotationKey, profile)
	}
	keys := slices.Sorted(maps.Keys(annotations))
	for _, key := range keys {
		if strings.HasPrefix(key, seccompPrefix) {
			annotatedSeccomp(p.Child("annotations"), key, annotations[key])
		}
	}
	for _, key := range keys {
		name, found := strings.CutPrefix(key, appArmorPrefix)
		if !found {
			continue
		}
		if !hasContainer(spec, name) {
			p.Add(field.Invalid(at(key), name, "container not found"))
		}
		if profile := annotations[key]; !validAppArmorName(profile) {
			p.Add(field.Invalid(at(key), profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile)))
		}
	}
}

func annotatedTolerations(p *check.Part, text string, allow leniency) {
	var list []corev1.Toleration
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		// Upstream decodes into its internal type, whose name is in the error.
		p.Invalid("", corev1.TolerationsAnnotationKey, strings.ReplaceAll(err.Error(), "v1.Toleration", "core.Toleration"))
		return
	}
	checkTolerations(p, corev1.TolerationsAnnotationKey, list, allow.comparingTolerations)
}

// validDeletionCost reports whether the annotation with the deletion cost, if there is one, is a plain number.
func validDeletionCost(annotations map[string]string) bool {
	cost, found := annotations[corev1.PodDeletionCost]
	if !found {
		return true
	}
	_, err := strconv.ParseInt(cost, 10, 32)
	return err == nil && cost[0] != '+' && (cost[0] != '0' || cost == "0")
}

func annotatedSeccomp(p *check.Part, key, profile string) {
	switch profile {
	case corev1.SeccompProfileRuntimeDefault, corev1.DeprecatedSeccompProfileDockerDefault, corev1.SeccompProfileNameUnconfined:
		return
	}
	if local, found := strings.CutPrefix(profile, corev1.SeccompLocalhostProfileNamePrefix); found {
		descending(p, key, local)
	} else {
		p.Invalid(key, profile, "must be a valid seccomp profile")
	}
}

func validAppArmorName(profile string) bool {
	switch profile {
	case "", corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return true
	}
	return strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
}

func hasContainer(spec *corev1.PodSpec, name string) bool {
	for _, c := range containers(spec) {
		if c.Name == name {
			return true
		}
	}
	return false
}

func isMirror(annotations map[string]string) bool {
	_, mirror := annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}

// checkProfilesAgree checks that annotations and fields do not name different security profiles. p is the spec.
func checkProfilesAgree(p *check.Part, annotations map[string]string, spec *corev1.PodSpec) {
	if len(annotations) == 0 {
		return
	}
	if s := spec.SecurityContext; s != nil && s.SeccompProfile != nil {
		seccompAgrees(p, annotations, corev1.SeccompPodAnnotationKey, s.SeccompProfile)
	}
	for at, c := range containers(spec) {
		if s := c.SecurityContext; s != nil && s.SeccompProfile != nil {
			seccompAgrees(at.in(p), annotations, seccompPrefix+c.Name, s.SeccompProfile)
		}
	}
	if spec.OS != nil && spec.OS.Name == corev1.Windows {
		return
	}
	for at, c := range containers(spec) {
		profile := podAppArmorProfile(spec)
		if s := c.SecurityContext; s != nil && s.AppArmorProfile != nil {
			profile = s.AppArmorProfile
		}
		if annotation, found := annotations[appArmorPrefix+c.Name]; found && profile != nil {
			agree(at.in(p).Child("securityContext").Child("appArmorProfile"), "apparmor", annotation, string(profile.Type), profile.LocalhostProfile)
		}
	}
}

func seccompAgrees(p *check.Part, annotations map[string]string, key string, profile *corev1.SeccompProfile) {
	annotation, found := annotations[key]
	if !found {
		return
	}
	if annotation == corev1.DeprecatedSeccompProfileDockerDefault {
		annotation = corev1.SeccompProfileRuntimeDefault
	}
	agree(p.Child("securityContext").Child("seccompProfile"), "seccomp", annotation, string(profile.Type), profile.LocalhostProfile)
}

// agree compares a profile with its annotation. seccomp and AppArmor spell types and annotations alike.
func agree(p *check.Part, kind, annotation, profile string, local *string) {
	const localhost = corev1.SeccompLocalhostProfileNamePrefix
	expected := map[string]string{
		string(corev1.SeccompProfileTypeUnconfined):     corev1.SeccompProfileNameUnconfined,
		string(corev1.SeccompProfileTypeRuntimeDefault): corev1.SeccompProfileRuntimeDefault,
		string(corev1.SeccompProfileTypeLocalhost):      localhost,
	}
	want, known := expected[profile]
	switch {
	case !known:
	case want != localhost && annotation != want, want == localhost && !strings.HasPrefix(annotation, localhost):
		p.Forbidden("type", kind+" type in annotation and field must match")
	case want == localhost && (local == nil || localhost+*local != annotation):
		p.Forbidden("localhostProfile", kind+" profile in annotation and field must match")
	}
}
