package volume

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Warnings returns the warnings for the volumes of a pod: of sources that no longer work, and of files
// that hide one another.
func Warnings(volumes []corev1.Volume, path *field.Path) []string {
	var warnings []string
	for i := range volumes {
		v := &volumes[i]
		if name, since := deprecation(&v.VolumeSource); name != "" {
			warnings = append(warnings, fmt.Sprintf("%s: deprecated in %s", path.Index(i).Child(name), since))
		}
		if e := v.Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
			warnings = append(warnings, claimSpecWarnings(&e.VolumeClaimTemplate.Spec, path.Index(i).Child("ephemeral", "volumeClaimTemplate", "spec"))...)
		}
	}
	for i := range volumes {
		warnings = append(warnings, overlaps(&volumes[i])...)
	}
	return warnings
}

func deprecation(s *corev1.VolumeSource) (name, since string) {
	switch {
	case s.PhotonPersistentDisk != nil:
		return "photonPersistentDisk", "v1.11, non-functional in v1.16+"
	case s.GitRepo != nil:
		return "gitRepo", "v1.11, and disabled by default in v1.33+"
	case s.ScaleIO != nil:
		return "scaleIO", "v1.16, non-functional in v1.22+"
	case s.Flocker != nil:
		return "flocker", "v1.22, non-functional in v1.25+"
	case s.StorageOS != nil:
		return "storageOS", "v1.22, non-functional in v1.25+"
	case s.Quobyte != nil:
		return "quobyte", "v1.22, non-functional in v1.25+"
	case s.Glusterfs != nil:
		return "glusterfs", "v1.25, non-functional in v1.26+"
	case s.CephFS != nil:
		return "cephfs", "v1.28, non-functional in v1.31+"
	case s.RBD != nil:
		return "rbd", "v1.28, non-functional in v1.31+"
	}
	return "", ""
}

// file is a file that a volume's source writes.
type file struct {
	path   string
	source string // which source of a projected volume writes it
}

func (f file) String() string {
	if f.source == "" {
		return fmt.Sprintf("%q", f.path)
	}
	return fmt.Sprintf("%q (%s)", f.path, f.source)
}

// overlaps returns the files of a volume that conflict with another: the same path, or a path below it.
func overlaps(v *corev1.Volume) []string {
	var warnings []string
	switch {
	case v.ConfigMap != nil && len(v.ConfigMap.Items) > 1:
		return overlapping(v.Name, fmt.Sprintf("ConfigMap %q", v.ConfigMap.Name), keyFiles(v.ConfigMap.Items, ""))
	case v.Secret != nil && len(v.Secret.Items) > 1:
		return overlapping(v.Name, fmt.Sprintf("Secret %q", v.Secret.SecretName), keyFiles(v.Secret.Items, ""))
	case v.DownwardAPI != nil && len(v.DownwardAPI.Items) > 1:
		return overlapping(v.Name, "DownwardAPI", downwardFiles(v.DownwardAPI.Items, ""))
	case v.Projected != nil:
		var files []file
		for i := range v.Projected.Sources {
			s := &v.Projected.Sources[i]
			if *s == (corev1.VolumeProjection{}) {
				warnings = append(warnings, fmt.Sprintf("volume %q (Projected) has no sources provided", v.Name))
			}
			files = append(files, projectedFiles(s)...)
		}
		warnings = append(warnings, overlapping(v.Name, "Projected", files)...)
	}
	return warnings
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
		c := s.PodCertificate
		return []file{{c.CertificateChainPath, "PodCertificate chain"}, {c.KeyPath, "PodCertificate key"},
			{c.CredentialBundlePath, "PodCertificate credential bundle"}}
	}
	return nil
}

func keyFiles(items []corev1.KeyToPath, source string) []file {
	files := make([]file, 0, len(items))
	for i := range items {
		files = append(files, file{items[i].Path, source})
	}
	return files
}

func downwardFiles(items []corev1.DownwardAPIVolumeFile, source string) []file {
	files := make([]file, 0, len(items))
	for i := range items {
		files = append(files, file{items[i].Path, source})
	}
	return files
}

func overlapping(volume, what string, files []file) []string {
	var warnings []string
	for i := range files {
		files[i].path = strings.TrimRight(files[i].path, "/")
		for _, earlier := range files[:i] {
			if inTheWay(files[i].path, earlier.path) {
				warnings = append(warnings, fmt.Sprintf("volume %q (%s): overlapping paths: %s with %s", volume, what, files[i], earlier))
			}
		}
	}
	return warnings
}

func inTheWay(a, b string) bool {
	return a != "" && b != "" && (a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/"))
}
