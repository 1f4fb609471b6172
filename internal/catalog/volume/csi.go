package volume

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

func checkCSI(at *check.Part, c *corev1.CSIVolumeSource) {
	at.Add(ValidateDriverName(c.Driver, at.Path("driver"))...)
	switch s := c.NodePublishSecretRef; {
	case s == nil:
	case s.Name == "":
		at.Child("nodePublishSecretRef").Required("name", "")
	default:
		at.Format("name", s.Name, isSubdomainName)
	}
}

func checkPersistentCSI(at *check.Part, c *corev1.CSIPersistentVolumeSource) {
	at.Add(ValidateDriverName(c.Driver, at.Path("driver"))...)
	required(at, "volumeHandle", c.VolumeHandle)
	checkCSISecret(at, "controllerPublishSecretRef", c.ControllerPublishSecretRef)
	checkCSISecret(at, "controllerExpandSecretRef", c.ControllerExpandSecretRef)
	checkCSISecret(at, "nodePublishSecretRef", c.NodePublishSecretRef)
	checkCSISecret(at, "nodeExpandSecretRef", c.NodeExpandSecretRef)
}

func checkCSISecret(at *check.Part, name string, s *corev1.SecretReference) {
	if s == nil {
		return
	}
	at = at.Child(name)
	if s.Name == "" {
		at.Required("name", "")
	} else {
		at.Format("name", s.Name, utilvalidation.IsDNS1123Subdomain)
	}
	if s.Namespace == "" {
		at.Required("namespace", "")
	} else {
		at.Format("namespace", s.Namespace, utilvalidation.IsDNS1123Label)
	}
}

// ValidateDriverName validates the name of a CSI driver.
func ValidateDriverName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > 63 {
		errs = append(errs, field.TooLong(path, "", 63))
	}
	for _, msg := range utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)) {
		errs = append(errs, field.Invalid(path, name, msg))
	}
	return errs
}

func checkClaimSource(at *check.Part, c *corev1.PersistentVolumeClaimVolumeSource) {
	required(at, "claimName", c.ClaimName)
}

func checkImage(at *check.Part, i *corev1.ImageVolumeSource) {
	required(at, "reference", i.Reference)
	if i.PullPolicy == "" {
		at.Required("pullPolicy", "")
		return
	}
	check.OneOf(at, "pullPolicy", i.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

func checkEphemeral(at *check.Part, e *corev1.EphemeralVolumeSource) {
	t := e.VolumeClaimTemplate
	if t == nil {
		at.Required("volumeClaimTemplate", "")
		return
	}
	at = at.Child("volumeClaimTemplate")
	checkTemplateMeta(at.Child("metadata"), &t.ObjectMeta)
	at.Add(ValidateClaimSpec(&t.Spec, at.Path("spec"))...)
}

// ValidateTemplateMeta validates the metadata of a template from which objects of another name are created: only labels and
// annotations are allowed.
func ValidateTemplateMeta(m *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	at := check.At(path)
	checkTemplateMeta(at, m)
	return at.Errors()
}

// checkTemplateMeta allows only labels and annotations: nothing else is copied to the claim.
func checkTemplateMeta(at *check.Part, m *metav1.ObjectMeta) {
	if len(m.Annotations) > 0 {
		at.Add(validation.ValidateAnnotations(m.Annotations, at.Path("annotations"))...)
	}
	if len(m.Labels) > 0 {
		at.Add(metav1validation.ValidateLabels(m.Labels, at.Path("labels"))...)
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"name", m.Name != ""},
		{"generateName", m.GenerateName != ""},
		{"namespace", m.Namespace != ""},
		{"selfLink", m.SelfLink != ""},
		{"uID", m.UID != ""},
		{"resourceVersion", m.ResourceVersion != ""},
		{"generation", m.Generation != 0},
		{"creationTimestamp", !m.CreationTimestamp.IsZero()},
		{"deletionTimestamp", m.DeletionTimestamp != nil},
		{"deletionGracePeriodSeconds", m.DeletionGracePeriodSeconds != nil},
		{"ownerReferences", m.OwnerReferences != nil},
		{"finalizers", m.Finalizers != nil},
		{"managedFields", m.ManagedFields != nil},
	} {
		if f.set {
			at.Forbidden(f.name, "cannot be set")
		}
	}
}
