package podrefs

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
)

// Kind is a kind of object that a pod refers to.
type Kind uint8

const (
	Secret Kind = iota
	ConfigMap
)

// HasSecret reports whether a pod refers to a secret.
func HasSecret(spec *corev1.PodSpec) bool { return has(spec, Secret) }

// HasConfigMap reports whether a pod refers to a config map.
func HasConfigMap(spec *corev1.PodSpec) bool { return has(spec, ConfigMap) }

func has(spec *corev1.PodSpec, want Kind) bool {
	for kind := range In(spec) {
		if kind == want {
			return true
		}
	}
	return false
}

// In iterates over the names of all secrets and config maps that a pod refers to; names can occur more than once and are never empty.
func In(spec *corev1.PodSpec) iter.Seq2[Kind, string] {
	return func(yield func(Kind, string) bool) {
		more := true
		refer := func(kind Kind, name string) {
			if more && name != "" {
				more = yield(kind, name)
			}
		}
		for i := range spec.ImagePullSecrets {
			refer(Secret, spec.ImagePullSecrets[i].Name)
		}
		for _, list := range [...][]corev1.Container{spec.InitContainers, spec.Containers} {
			for i := range list {
				environment(list[i].Env, list[i].EnvFrom, refer)
			}
		}
		for i := range spec.EphemeralContainers {
			environment(spec.EphemeralContainers[i].Env, spec.EphemeralContainers[i].EnvFrom, refer)
		}
		for i := range spec.Volumes {
			volume(&spec.Volumes[i].VolumeSource, refer)
		}
	}
}

func environment(env []corev1.EnvVar, from []corev1.EnvFromSource, refer func(Kind, string)) {
	for i := range from {
		if ref := from[i].SecretRef; ref != nil {
			refer(Secret, ref.Name)
		}
		if ref := from[i].ConfigMapRef; ref != nil {
			refer(ConfigMap, ref.Name)
		}
	}
	for i := range env {
		value := env[i].ValueFrom
		if value == nil {
			continue
		}
		if ref := value.SecretKeyRef; ref != nil {
			refer(Secret, ref.Name)
		}
		if ref := value.ConfigMapKeyRef; ref != nil {
			refer(ConfigMap, ref.Name)
		}
	}
}

func volume(v *corev1.VolumeSource, refer func(Kind, string)) {
	local := func(ref *corev1.LocalObjectReference) {
		if ref != nil {
			refer(Secret, ref.Name)
		}
	}
	switch {
	case v.Secret != nil:
		refer(Secret, v.Secret.SecretName)
	case v.ConfigMap != nil:
		refer(ConfigMap, v.ConfigMap.Name)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if source := v.Projected.Sources[i].Secret; source != nil {
				refer(Secret, source.Name)
			}
			if source := v.Projected.Sources[i].ConfigMap; source != nil {
				refer(ConfigMap, source.Name)
			}
		}
	case v.CSI != nil:
		local(v.CSI.NodePublishSecretRef)
	case v.AzureFile != nil:
		refer(Secret, v.AzureFile.SecretName)
	case v.CephFS != nil:
		local(v.CephFS.SecretRef)
	case v.Cinder != nil:
		local(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		local(v.FlexVolume.SecretRef)
	case v.RBD != nil:
		local(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		local(v.ScaleIO.SecretRef)
	case v.ISCSI != nil:
		local(v.ISCSI.SecretRef)
	case v.StorageOS != nil:
		local(v.StorageOS.SecretRef)
	}
}
