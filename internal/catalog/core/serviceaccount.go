package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"

	"skiff/internal/catalog"
)

var ServiceAccount = catalog.Resource[corev1.ServiceAccount]{
	Version: "v1", Kind: "ServiceAccount", Plural: "serviceaccounts", Short: []string{"sa"}, Namespaced: true,
	Deletion:            catalog.Deletion[corev1.ServiceAccount]{ReturnsObject: true},
	EndsTokens:          true,
	KeepDecoded:         true, // read to authenticate tokens and to admit pods
	Name:                validation.ValidateServiceAccountName,
	UnconditionalUpdate: true,
	PrepareCreate:       func(s *corev1.ServiceAccount, _ catalog.Request) { keepSecretNames(s) },
	PrepareUpdate:       func(new, _ *corev1.ServiceAccount) { keepSecretNames(new) },
	Warnings:            serviceAccountWarnings,
	Subresources: []catalog.Subresource{
		{Name: "token", Kind: "TokenRequest", Group: "authentication.k8s.io", Version: "v1", Verbs: []string{"create"}},
	},
	Columns: []catalog.Column[corev1.ServiceAccount]{
		catalog.NameColumn[corev1.ServiceAccount](),
		catalog.AgeColumn[corev1.ServiceAccount](),
	},
	Complete: true,
}

// keepSecretNames clears everything but the name of references to secrets, which are always in the account's namespace.
func keepSecretNames(s *corev1.ServiceAccount) {
	for i := range s.Secrets {
		s.Secrets[i] = corev1.ObjectReference{Name: s.Secrets[i].Name}
	}
}

const enforceMountableSecrets = "kubernetes.io/enforce-mountable-secrets"

// serviceAccountWarnings warns of a deprecated annotation only if the request adds it.
func serviceAccountWarnings(new, old *corev1.ServiceAccount) []string {
	if old != nil {
		if _, had := old.Annotations[enforceMountableSecrets]; had {
			return nil
		}
	}
	if _, has := new.Annotations[enforceMountableSecrets]; !has {
		return nil
	}
	return []string{"metadata.annotations[" + enforceMountableSecrets +
		"]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
}
