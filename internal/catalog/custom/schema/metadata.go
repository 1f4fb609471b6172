package schema

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// DropStatus removes the status from an object that is created with the status subresource on.
func DropStatus(obj map[string]any) {
	delete(obj, "status")
}

// CopyStatus gives an object that is updated the old object's status, or none if that has none, as the status subresource demands of
// updates through the main endpoint. The status is shared.
func CopyStatus(obj, old map[string]any) {
	if status, ok := old["status"]; ok {
		obj["status"] = status
	} else {
		delete(obj, "status")
	}
}

// KeepAllButStatus makes an object that is updated through the status subresource the old one but for its status and metadata. What is
// kept is shared with the old object. Of metadata only managedFields may change; that is left to the caller.
func KeepAllButStatus(obj, old map[string]any) {
	for name := range obj {
		if name != "status" && name != "metadata" {
			delete(obj, name)
		}
	}
	for name, value := range old {
		if name != "status" && name != "metadata" {
			obj[name] = value
		}
	}
}

// GenerationChanged says whether an update through the main endpoint makes the generation grow: whether anything but metadata changed, and
// with the status subresource on anything but status.
func GenerationChanged(obj, old map[string]any, hasStatus bool) bool {
	ignored := func(name string) bool { return name == "metadata" || hasStatus && name == "status" }
	for name, value := range obj {
		if ignored(name) {
			continue
		}
		if oldValue, ok := old[name]; !ok || !apiequality.Semantic.DeepEqual(value, oldValue) {
			return true
		}
	}
	for name := range old {
		if _, ok := obj[name]; !ok && !ignored(name) {
			return true
		}
	}
	return false
}

// HasStatus says whether the version has the status subresource.
func (s *Schema) HasStatus() bool { return s.hasStatus }

// ObjectMeta returns the metadata of an object as a decoder of typed objects would, and with report the paths of fields that it does not
// know, such as "metadata.foo".
func ObjectMeta(obj map[string]any, report bool) (meta *metav1.ObjectMeta, unknown []string, err error) {
	meta, found, unknown, err := objectmeta.GetObjectMetaWithOptions(obj, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: report})
	if err != nil {
		return nil, nil, err
	}
	if !found {
		return &metav1.ObjectMeta{}, nil, nil
	}
	return meta, unknown, nil
}

// Warnings returns what clients are warned of that write an object through the main endpoint: finalizers that should have better names, of
// which only those count that the old object does not have. Old is nil on create. Writes of status are not warned of.
func Warnings(finalizers, old []string) []string {
	var warnings []string
	added := slices.Clone(finalizers)
	slices.Sort(added)
	for _, name := range slices.Compact(added) {
		if !slices.Contains(old, name) {
			warnings = append(warnings, finalizerWarnings(name)...)
		}
	}
	return warnings
}

func finalizerWarnings(name string) []string {
	var warnings []string
	warn := func(text string) {
		warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: %s", name, text))
	}
	for _, message := range validation.IsQualifiedName(name) {
		warn(message)
	}
	if strings.Contains(name, "/") {
		return warnings
	}
	switch name {
	case metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, string(corev1.FinalizerKubernetes):
		return warnings
	}
	if strings.Contains(name, ".") {
		warn("prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers")
	} else {
		warn("prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers")
	}
	return warnings
}
