package volume

import (
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/catalog/quantity"
)

// Default defaults a volume of a pod.
func Default(v *corev1.Volume) {
	s := &v.VolumeSource
	if *s == (corev1.VolumeSource{}) {
		s.EmptyDir = &corev1.EmptyDirVolumeSource{}
		return
	}
	if s.ConfigMap != nil {
		fill(&s.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if s.Secret != nil {
		fill(&s.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if s.Projected != nil {
		defaultProjected(s.Projected)
	}
	if s.DownwardAPI != nil {
		fill(&s.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultFieldRefs(s.DownwardAPI.Items)
	}
	if s.HostPath != nil {
		fill(&s.HostPath.Type, corev1.HostPathUnset)
	}
	if s.Ephemeral != nil && s.Ephemeral.VolumeClaimTemplate != nil {
		DefaultClaimSpec(&s.Ephemeral.VolumeClaimTemplate.Spec)
	}
	if s.Image != nil && s.Image.PullPolicy == "" {
		s.Image.PullPolicy = pullPolicy(s.Image.Reference)
	}
	if s.ISCSI != nil {
		defaultISCSI(&s.ISCSI.ISCSIInterface)
	}
	if s.RBD != nil {
		defaultRBD(&s.RBD.RBDPool, &s.RBD.RadosUser, &s.RBD.Keyring)
	}
	if s.AzureDisk != nil {
		defaultAzureDisk(s.AzureDisk)
	}
	if s.ScaleIO != nil {
		defaultScaleIO(&s.ScaleIO.StorageMode, &s.ScaleIO.FSType)
	}
}

// DefaultClaimSpec defaults the spec of a claim.
func DefaultClaimSpec(s *corev1.PersistentVolumeClaimSpec) {
	fill(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	quantity.RoundUp(s.Resources.Limits)
	quantity.RoundUp(s.Resources.Requests)
}

// DefaultClaim defaults a claim.
func DefaultClaim(c *corev1.PersistentVolumeClaim) {
	fillString(&c.Status.Phase, corev1.ClaimPending)
	DefaultClaimSpec(&c.Spec)
	quantity.RoundUp(c.Status.Capacity)
	quantity.RoundUp(c.Status.AllocatedResources)
}

func defaultPersistentVolume(v *corev1.PersistentVolume) {
	fillString(&v.Status.Phase, corev1.VolumePending)
	fillString(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	fill(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	DefaultInlineSpec(&v.Spec)
}

// DefaultInlineSpec defaults the inline volume spec of a volume attachment, which takes the place of the name of a
// volume.
func DefaultInlineSpec(spec *corev1.PersistentVolumeSpec) {
	quantity.RoundUp(spec.Capacity)
	s := &spec.PersistentVolumeSource
	if s.HostPath != nil {
		fill(&s.HostPath.Type, corev1.HostPathUnset)
	}
	if s.ISCSI != nil {
		defaultISCSI(&s.ISCSI.ISCSIInterface)
	}
	if s.RBD != nil {
		defaultRBD(&s.RBD.RBDPool, &s.RBD.RadosUser, &s.RBD.Keyring)
	}
	if s.AzureDisk != nil {
		defaultAzureDisk(s.AzureDisk)
	}
	if s.ScaleIO != nil {
		defaultScaleIO(&s.ScaleIO.StorageMode, &s.ScaleIO.FSType)
	}
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	fill(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		if d := p.Sources[i].DownwardAPI; d != nil {
			defaultFieldRefs(d.Items)
		}
		if t := p.Sources[i].ServiceAccountToken; t != nil {
			fill(&t.ExpirationSeconds, int64(time.Hour/time.Second))
		}
	}
}

func defaultFieldRefs(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		if ref := files[i].FieldRef; ref != nil {
			fillString(&ref.APIVersion, "v1")
		}
	}
}

// The functions below take fields and not structs, because pod volumes and persistent volumes have different types for the same sources.

func defaultISCSI(iface *string) { fillString(iface, "default") }

func defaultRBD(pool, user, keyring *string) {
	fillString(pool, "rbd")
	fillString(user, "admin")
	fillString(keyring, "/etc/ceph/keyring")
}

func defaultScaleIO(storageMode, fsType *string) {
	fillString(storageMode, "ThinProvisioned")
	fillString(fsType, "xfs")
}

func defaultAzureDisk(d *corev1.AzureDiskVolumeSource) {
	fill(&d.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	fill(&d.FSType, "ext4")
	fill(&d.ReadOnly, false)
	fill(&d.Kind, corev1.AzureSharedBlobDisk)
}

// pullPolicy returns Always for an image whose tag is latest, explicitly or by default, because that tag is expected to move.
func pullPolicy(image string) corev1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return corev1.PullIfNotPresent
	}
	tagged, hasTag := named.(reference.Tagged)
	_, hasDigest := named.(reference.Digested)
	if hasTag && tagged.Tag() == "latest" || !hasTag && !hasDigest {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func fill[T any](field **T, value T) {
	if *field == nil {
		v := value // so that the parameter itself need not escape
		*field = &v
	}
}

func fillString[S ~string](field *S, value S) {
	if *field == "" {
		*field = value
	}
}
