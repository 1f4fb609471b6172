package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

// Binding binds a pod to a node. It is never stored: the server sets the pod's node. Clients use pods/binding today;
// this is the same under its old path.
var Binding = catalog.Resource[corev1.Binding]{
	Version: "v1", Kind: "Binding", Plural: "bindings", Namespaced: true,
	Verbs: []string{"create"}, Virtual: true,
	Validate: ValidateBinding,
	Complete: true,
}

// ValidateBinding validates the target of a binding.
func ValidateBinding(b *corev1.Binding) field.ErrorList {
	p := check.At(field.NewPath("target"))
	toNode := b.Target.Kind == "" || b.Target.Kind == "Node"
	if !toNode {
		p.Add(field.NotSupported(p.Path("kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		p.Required("name", "")
	} else if toNode {
		p.Format("name", b.Target.Name, validation.IsDNS1123Subdomain)
	}
	return p.Errors()
}
