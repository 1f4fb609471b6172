// Package podrefs finds out which other objects of its namespace a pod relies on.
package podrefs

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
)

// HasSecret reports whether a pod names a secret anywhere.
func HasSecret(spec *corev1.PodSpec) bool {
	for i := range spec.ImagePullSecrets {
		if spec.ImagePullSecrets[i].Name != "" {
			return true
		}
	}
	for env, from := range environments(spec) {
		for i := range from {
			if ref := from[i].SecretRef; ref != nil && ref.Name != "" {
				return true
			}
		}
		for i := range env {
			if source := env[i].ValueFrom; source != nil && source.SecretKeyRef != nil && source.SecretKeyRef.Name != "" {
				return true
			}
		}
	}
	for i := range spec.Volumes {
		if volumeHasSecret(&spec.Volumes[i].VolumeSource) {
			return true
		}
	}
	return false
}

func volumeHasSecret(v *corev1.VolumeSource) bool {
	named := func(ref *corev1.LocalObjectReference) bool { return ref != nil && ref.Name != "" }
	switch {
	case v.AzureFile != nil:
		return v.AzureFile.SecretName != ""
	case v.CephFS != nil:
		return named(v.CephFS.SecretRef)
	case v.Cinder != nil:
		return named(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		return named(v.FlexVolume.SecretRef)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if secret := v.Projected.Sources[i].Secret; secret != nil && secret.Name != "" {
				return true
			}
		}
		return false
	case v.RBD != nil:
		return named(v.RBD.SecretRef)
	case v.Secret != nil:
		return v.Secret.SecretName != ""
	case v.ScaleIO != nil:
		return named(v.ScaleIO.SecretRef)
	case v.ISCSI != nil:
		return named(v.ISCSI.SecretRef)
	case v.StorageOS != nil:
		return named(v.StorageOS.SecretRef)
	case v.CSI != nil:
		return named(v.CSI.NodePublishSecretRef)
	default:
		return false
	}
}

// HasConfigMap reports whether a pod names a config map anywhere.
func HasConfigMap(spec *corev1.PodSpec) bool {
	for env, from := range environments(spec) {
		for i := range from {
			if ref := from[i].ConfigMapRef; ref != nil && ref.Name != "" {
				return true
			}
		}
		for i := range env {
			if source := env[i].ValueFrom; source != nil && source.ConfigMapKeyRef != nil && source.ConfigMapKeyRef.Name != "" {
				return true
			}
		}
	}
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i].VolumeSource; {
		case v.Projected != nil:
			for j := range v.Projected.Sources {
				if m := v.Projected.Sources[j].ConfigMap; m != nil && m.Name != "" {
					return true
				}
			}
		case v.ConfigMap != nil && v.ConfigMap.Name != "":
			return true
		}
	}
	return false
}

// environments are what the containers of a pod, of all three kinds, say about their environment.
func environments(spec *corev1.PodSpec) iter.Seq2[[]corev1.EnvVar, []corev1.EnvFromSource] {
	return func(yield func([]corev1.EnvVar, []corev1.EnvFromSource) bool) {
		for _, list := range [...][]corev1.Container{spec.InitContainers, spec.Containers} {
			for i := range list {
				if !yield(list[i].Env, list[i].EnvFrom) {
					return
				}
			}
		}
		for i := range spec.EphemeralContainers {
			if c := &spec.EphemeralContainers[i]; !yield(c.Env, c.EnvFrom) {
				return
			}
		}
	}
}
