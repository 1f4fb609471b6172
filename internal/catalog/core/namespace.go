package core

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
)

var Namespace = catalog.Resource[corev1.Namespace]{
	Version: "v1", Kind: "Namespace", Plural: "namespaces", Short: []string{"ns"},
	KeepDecoded: true, // read to admit whatever is written in them
	Critical:    func(*corev1.Namespace) bool { return true },
	// A namespace that is deleted is Terminating until its spec.finalizers, which stand for its content, are gone too.
	Deletion: catalog.Deletion[corev1.Namespace]{
		ReturnsObject: true,
		Finalizing:    func(n *corev1.Namespace) bool { return len(n.Spec.Finalizers) > 0 },
		Mark: func(n *corev1.Namespace) {
			n.Status.Phase = corev1.NamespaceTerminating
			n.DeletionGracePeriodSeconds = nil
		},
	},
	// There is no deletecollection: the namespace controller deletes one namespace at a time.
	Verbs:               []string{"create", "delete", "get", "list", "patch", "update", "watch"},
	Name:                validation.ValidateNamespaceName,
	UnconditionalUpdate: true,
	Default:             defaultNamespace,
	PrepareCreate:       prepareNamespace,
	PrepareUpdate: func(new, old *corev1.Namespace) {
		new.Spec.Finalizers = old.Spec.Finalizers
		labelWithName(new)
	},
	Validate:       validateNamespace,
	ValidateUpdate: func(new, _ *corev1.Namespace) field.ErrorList { return validateNamespace(new) },
	Status:         &catalog.Edit[corev1.Namespace]{ValidateUpdate: validateNamespaceStatus},
	Edits: []catalog.Edit[corev1.Namespace]{{
		Name: "finalize", Verbs: []string{"update"},
		PrepareUpdate:  func(new, old *corev1.Namespace) { new.Status = old.Status },
		ValidateUpdate: validateNamespaceFinalize,
		ResetFields:    []string{"status"},
	}},
	Fields: []catalog.Field[corev1.Namespace]{
		{Name: "status.phase", Value: func(n *corev1.Namespace) string { return string(n.Status.Phase) }},
	},
	Columns: []catalog.Column[corev1.Namespace]{
		catalog.NameColumn[corev1.Namespace](),
		{Name: "Status", Description: "The status of the namespace",
			Cell: func(n *corev1.Namespace, _ time.Time) any { return string(n.Status.Phase) }},
		catalog.AgeColumn[corev1.Namespace](),
	},
	Complete: true,
}

func defaultNamespace(n *corev1.Namespace) {
	labelWithName(n)
	if n.Status.Phase == "" {
		n.Status.Phase = corev1.NamespaceActive
	}
}

// labelWithName sets the label with the namespace's name, by which selectors can match it. It does nothing while the name is still to
// be generated.
func labelWithName(n *corev1.Namespace) {
	if n.Name == "" || n.Labels[corev1.LabelMetadataName] == n.Name {
		return
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
}

// prepareNamespace sets the label and the phase of a new namespace, and adds the kubernetes finalizer, with which the namespace
// controller empties the namespace before it is removed.
func prepareNamespace(n *corev1.Namespace, _ catalog.Request) {
	labelWithName(n)
	n.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(n.Spec.Finalizers, corev1.FinalizerKubernetes) {
		n.Spec.Finalizers = append(n.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

func validateNamespace(n *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "finalizers")
	for _, name := range n.Spec.Finalizers {
		errs = append(errs, validateFinalizer(string(name), path)...)
	}
	return errs
}

func validateNamespaceFinalize(new, _ *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "finalizers")
	for i, name := range new.Spec.Finalizers {
		errs = append(errs, validateFinalizer(string(name), path.Index(i))...)
	}
	return errs
}

func validateFinalizer(name string, path *field.Path) field.ErrorList {
	switch name {
	case string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents:
		return nil
	}
	errs := validation.ValidateFinalizerName(name, path)
	if !strings.Contains(name, "/") {
		errs = append(errs, field.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified"))
	}
	return errs
}

// validateNamespaceStatus requires the phase Terminating if, and only if, the namespace is being deleted.
func validateNamespaceStatus(new, _ *corev1.Namespace) field.ErrorList {
	want, msg := corev1.NamespaceActive, "may only be 'Active' if `deletionTimestamp` is empty"
	if !new.DeletionTimestamp.IsZero() {
		want, msg = corev1.NamespaceTerminating, "may only be 'Terminating' if `deletionTimestamp` is not empty"
	}
	if new.Status.Phase == want {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("status", "Phase"), new.Status.Phase, msg)}
}
