package serviceaccount

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

const (
	volumePrefix = "kube-api-access-"
	mountPath    = "/var/run/secrets/kubernetes.io/serviceaccount"
	// tokenSeconds is the lifetime of the token. The seven seconds tell it from tokens requested for an hour; the authenticator accepts
	// it for longer, with a warning.
	tokenSeconds = 60*60 + 7
)

// mountToken mounts the token in every container that has no other mount at its path.
func mountToken(spec *corev1.PodSpec) {
	name, present := tokenVolume(spec.Volumes)
	if !present {
		name = volumePrefix + rand.String(5)
	}
	mounted := mount(spec.InitContainers, name)
	mounted = mount(spec.Containers, name) || mounted
	if mounted && !present {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: newTokenSource()}})
	}
}

// tokenVolume returns the name of the pod's volume for the token: a pod copied from another may have one already.
func tokenVolume(volumes []corev1.Volume) (name string, ok bool) {
	for i := range volumes {
		if strings.HasPrefix(volumes[i].Name, volumePrefix) {
			return volumes[i].Name, true
		}
	}
	return "", false
}

func mount(containers []corev1.Container, volume string) (mounted bool) {
	for i := range containers {
		if c := &containers[i]; !occupied(c.VolumeMounts) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, ReadOnly: true, MountPath: mountPath})
			mounted = true
		}
	}
	return mounted
}

func occupied(mounts []corev1.VolumeMount) bool {
	for i := range mounts {
		if mounts[i].MountPath == mountPath {
			return true
		}
	}
	return false
}

// tokenSource holds the projected volume in one allocation: nearly every pod gets one.
type tokenSource struct {
	volume      corev1.ProjectedVolumeSource
	sources     [3]corev1.VolumeProjection
	mode        int32
	token       corev1.ServiceAccountTokenProjection
	seconds     int64
	ca          corev1.ConfigMapProjection
	caItems     [1]corev1.KeyToPath
	namespace   corev1.DownwardAPIProjection
	files       [1]corev1.DownwardAPIVolumeFile
	namespaceOf corev1.ObjectFieldSelector
}

// newTokenSource returns a projected volume with the token, the cluster's CA certificate and the name of the namespace.
func newTokenSource() *corev1.ProjectedVolumeSource {
	s := &tokenSource{mode: corev1.ProjectedVolumeSourceDefaultMode, seconds: tokenSeconds}
	s.token = corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &s.seconds}
	s.caItems[0] = corev1.KeyToPath{Key: "ca.crt", Path: "ca.crt"}
	s.ca = corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: s.caItems[:]}
	s.namespaceOf = corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}
	s.files[0] = corev1.DownwardAPIVolumeFile{Path: "namespace", FieldRef: &s.namespaceOf}
	s.namespace = corev1.DownwardAPIProjection{Items: s.files[:]}
	s.sources = [3]corev1.VolumeProjection{{ServiceAccountToken: &s.token}, {ConfigMap: &s.ca}, {DownwardAPI: &s.namespace}}
	s.volume = corev1.ProjectedVolumeSource{Sources: s.sources[:], DefaultMode: &s.mode}
	return &s.volume
}
