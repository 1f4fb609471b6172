package volume

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/quantity"
)

// This file validates the sources that the kubelet writes as files.

func checkSecret(at *check.Part, s *corev1.SecretVolumeSource) {
	required(at, "secretName", s.SecretName)
	checkFileDefaults(at, s.DefaultMode, s.DefaultUser)
	checkKeys(at, s.Items)
}

func checkConfigMap(at *check.Part, c *corev1.ConfigMapVolumeSource) {
	required(at, "name", c.Name)
	checkFileDefaults(at, c.DefaultMode, c.DefaultUser)
	checkKeys(at, c.Items)
}

func checkDownwardAPI(at *check.Part, d *corev1.DownwardAPIVolumeSource) {
	checkFileDefaults(at, d.DefaultMode, d.DefaultUser)
	for i := range d.Items {
		checkDownwardFile(at, &d.Items[i])
	}
}

func checkFileDefaults(at *check.Part, mode *int32, user *int64) {
	checkMode(at, "defaultMode", mode)
	checkUser(at, "defaultUser", user)
}

func checkKeys(at *check.Part, items []corev1.KeyToPath) {
	for i := range items {
		checkKey(at.Item("items", i), &items[i])
	}
}

func checkKey(at *check.Part, k *corev1.KeyToPath) {
	required(at, "key", k.Key)
	required(at, "path", k.Path)
	checkFilePath(at, "path", k.Path)
	checkMode(at, "mode", k.Mode)
	checkUser(at, "user", k.User)
}

// checkDownwardFile reports errors at the path of the whole source, not of the file, as upstream does.
func checkDownwardFile(at *check.Part, f *corev1.DownwardAPIVolumeFile) {
	required(at, "path", f.Path)
	checkFilePath(at, "path", f.Path)
	switch {
	case f.FieldRef != nil:
		if !isAllowedField(f.FieldRef, volumeFields) {
			at.Add(FieldRef(f.FieldRef, volumeFields, at.Path("fieldRef"))...)
		}
		if f.ResourceFieldRef != nil {
			at.Invalid("", "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case f.ResourceFieldRef != nil:
		at.Add(quantity.ResourceFieldRef(f.ResourceFieldRef, true, at.Path("resourceFieldRef"))...)
	default:
		at.Required("", "one of fieldRef and resourceFieldRef is required")
	}
	checkMode(at, "mode", f.Mode)
	checkUser(at, "user", f.User)
}

func checkMode(at *check.Part, name string, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		at.Invalid(name, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

func checkUser(at *check.Part, name string, user *int64) {
	if user == nil {
		return
	}
	for _, msg := range validation.IsValidUserID(*user) {
		at.Invalid(name, *user, msg)
	}
}

// volumeFields are the fields of a pod that a volume can refer to, sorted.
var volumeFields = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}

// downwardFields are the fields of a pod that any reference can name.
var downwardFields = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
	"spec.host", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
	"status.hostIP", "status.hostIPs", "status.phase", "status.podIP", "status.podIPs"}

// FieldRef validates a reference to a field of a pod. allowed, sorted, are the fields that are allowed at this place; one
// label or annotation always is.
func FieldRef(ref *corev1.ObjectFieldSelector, allowed []string, path *field.Path) field.ErrorList {
	at := check.At(path)
	switch {
	case isAllowedField(ref, allowed):
	case ref.APIVersion == "":
		at.Required("apiVersion", "")
	case ref.FieldPath == "":
		at.Required("fieldPath", "")
	case ref.APIVersion != "v1":
		at.Invalid("fieldPath", ref.FieldPath, "error converting fieldPath: unsupported pod version: "+ref.APIVersion)
	default:
		checkFieldPath(at, ref.FieldPath, allowed)
	}
	return at.Errors()
}

func isAllowedField(ref *corev1.ObjectFieldSelector, allowed []string) bool {
	return ref.APIVersion == "v1" && slices.Contains(allowed, ref.FieldPath)
}

func checkFieldPath(at *check.Part, path string, allowed []string) {
	parent, key, hasKey := cutKey(path)
	switch {
	case hasKey && parent == "metadata.annotations":
		at.Format("", strings.ToLower(key), validation.IsQualifiedName)
	case hasKey && parent == "metadata.labels":
		at.Format("", key, validation.IsQualifiedName)
	case hasKey:
		at.Invalid("fieldPath", path, "error converting fieldPath: field label does not support subscript: "+path)
	case !slices.Contains(downwardFields, path):
		at.Invalid("fieldPath", path, "error converting fieldPath: field label not supported: "+path)
	default:
		if path == "spec.host" { // its name in the first clients of v1
			path = "spec.nodeName"
		}
		check.OneOf(at, "fieldPath", path, allowed...)
	}
}

// cutKey splits a path such as metadata.labels['key'].
func cutKey(path string) (parent, key string, ok bool) {
	rest, ok := strings.CutSuffix(path, "']")
	if !ok {
		return path, "", false
	}
	parent, key, ok = strings.Cut(rest, "['")
	return parent, key, ok && parent != ""
}
