package pod

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

// volumes warns of kinds of volumes that no longer work, and of files that hide each other.
func (w *warner) volumes(p *check.Part, list []corev1.Volume) {
	for i := range list {
		v, at := &list[i], p.Item("volumes", i)
		for _, former := range [...]struct {
			used          bool
			name, message string
		}{
			{v.PhotonPersistentDisk != nil, "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
			{v.GitRepo != nil, "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"},
			{v.ScaleIO != nil, "scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
			{v.Flocker != nil, "flocker", "deprecated in v1.22, non-functional in v1.25+"},
			{v.StorageOS != nil, "storageOS", "deprecated in v1.22, non-functional in v1.25+"},
			{v.Quobyte != nil, "quobyte", "deprecated in v1.22, non-functional in v1.25+"},
			{v.Glusterfs != nil, "glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
			{v.CephFS != nil, "cephfs", "deprecated in v1.28, non-functional in v1.31+"},
			{v.RBD != nil, "rbd", "deprecated in v1.28, non-functional in v1.31+"},
		} {
			if former.used {
				w.at(at.Path(former.name), "%s", former.message)
			}
		}
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			w.list = append(w.list, ClaimSpecWarnings(&v.Ephemeral.VolumeClaimTemplate.Spec, at.Path("ephemeral", "volumeClaimTemplate", "spec"))...)
		}
	}
	for i := range list {
		w.overlappingFiles(&list[i])
	}
}

// ClaimSpecWarnings are those of the spec of a claim, wherever it stands.
func ClaimSpecWarnings(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) []string {
	w := &warner{}
	at := check.At(path).Child("resources")
	w.bytes(at, "requests", spec.Resources.Requests, corev1.ResourceStorage)
	w.bytes(at, "limits", spec.Resources.Limits, corev1.ResourceStorage)
	return w.list
}

// file is a path in a volume, and what is written there.
type file struct{ path, source string }

func (f file) String() string {
	if f.source == "" {
		return fmt.Sprintf("%q", f.path)
	}
	return fmt.Sprintf("%q (%s)", f.path, f.source)
}

// overlappingFiles warns if two files of a volume have the same path, or one would have to lie in the other.
func (w *warner) overlappingFiles(v *corev1.Volume) {
	switch {
	case v.ConfigMap != nil:
		w.overlaps(v.Name, fmt.Sprintf("ConfigMap %q", v.ConfigMap.Name), keyFiles(v.ConfigMap.Items, ""))
	case v.Secret != nil:
		w.overlaps(v.Name, fmt.Sprintf("Secret %q", v.Secret.SecretName), keyFiles(v.Secret.Items, ""))
	case v.DownwardAPI != nil:
		w.overlaps(v.Name, "DownwardAPI", downwardFiles(v.DownwardAPI.Items, ""))
	case v.Projected != nil:
		var all []file
		for i := range v.Projected.Sources {
			s := &v.Projected.Sources[i]
			if *s == (corev1.VolumeProjection{}) {
				w.list = append(w.list, fmt.Sprintf("volume %q (Projected) has no sources provided", v.Name))
				continue
			}
			all = append(all, projectedFiles(s)...)
		}
		w.overlaps(v.Name, "Projected", all)
	}
}

func (w *warner) overlaps(volume, kind string, files []file) {
	for i := range files {
		files[i].path = strings.TrimRight(files[i].path, "/")
		for _, before := range files[:i] {
			if within(files[i].path, before.path) || within(before.path, files[i].path) {
				w.list = append(w.list, fmt.Sprintf("volume %q (%s): overlapping paths: %s with %s", volume, kind, files[i], before))
			}
		}
	}
}

// within reports whether one path is another or lies below it.
func within(path, parent string) bool {
	return path != "" && parent != "" && strings.HasPrefix(path+"/", parent+"/")
}

func keyFiles(items []corev1.KeyToPath, source string) []file {
	var list []file
	for _, item := range items {
		list = append(list, file{item.Path, source})
	}
	return list
}

func downwardFiles(items []corev1.DownwardAPIVolumeFile, source string) []file {
	var list []file
	for _, item := range items {
		list = append(list, file{item.Path, source})
	}
	return list
}

func projectedFiles(s *corev1.VolumeProjection) []file {
	switch {
	case s.ConfigMap != nil && s.ConfigMap.Items != nil:
		return keyFiles(s.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", s.ConfigMap.Name))
	case s.Secret != nil && s.Secret.Items != nil:
		return keyFiles(s.Secret.Items, fmt.Sprintf("Secret %q", s.Secret.Name))
	case s.DownwardAPI != nil && s.DownwardAPI.Items != nil:
		return downwardFiles(s.DownwardAPI.Items, "DownwardAPI")
	case s.ServiceAccountToken != nil:
		return []file{{s.ServiceAccountToken.Path, "ServiceAccountToken"}}
	case s.ClusterTrustBundle != nil:
		name := cmp.Or(s.ClusterTrustBundle.Name, s.ClusterTrustBundle.SignerName, new(string))
		return []file{{s.ClusterTrustBundle.Path, fmt.Sprintf("ClusterTrustBundle %q", *name)}}
	case s.PodCertificate != nil:
		var list []file
		for _, f := range [...]file{{s.PodCertificate.CertificateChainPath, "PodCertificate chain"}, {s.PodCertificate.KeyPath, "PodCertificate key"},
			{s.PodCertificate.CredentialBundlePath, "PodCertificate credential bundle"}} {
			if f.path != "" {
				list = append(list, f)
			}
		}
		return list
	}
	return nil
}
