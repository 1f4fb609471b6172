package serviceaccount

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The bounds of a requested lifetime, in seconds.
const (
	minExpiration = 10 * 60
	maxExpiration = 1 << 32
)

func validateRequest(req *authenticationv1.TokenRequest) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if seconds := *req.Spec.ExpirationSeconds; seconds < minExpiration {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes"))
	} else if seconds > maxExpiration {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds"))
	}
	attestations := spec.Child("attestations")
	if !isWebhook(req.Spec.BoundObjectRef) {
		if len(req.Spec.Attestations) > 0 {
			return field.ErrorList{field.Invalid(attestations, req.Spec.Attestations, "attestations may only be specified with a webhook bound object reference")}
		}
		return errs
	}
	if len(req.Spec.Audiences) != 1 {
		errs = append(errs, field.Invalid(spec.Child("audiences"), req.Spec.Audiences, "must be length 1 when bound to a webhook config"))
	}
	return append(errs, validateAttestations(attestations, req.Spec.Attestations)...)
}

func isWebhook(ref *authenticationv1.BoundObjectReference) bool {
	return ref != nil && (ref.Kind == "ValidatingWebhookConfiguration" || ref.Kind == "MutatingWebhookConfiguration") &&
		ref.APIVersion == admissionregistrationv1.SchemeGroupVersion.String()
}

func validateAttestations(at *field.Path, attestations map[string]authenticationv1.AttestationValue) field.ErrorList {
	if len(attestations) != 1 {
		return field.ErrorList{field.Invalid(at, attestations, "webhook bound requests require exactly one admissionReviewAPIGroups attestation")}
	}
	const known = authenticationv1.AttestationAdmissionReviewAPIGroups
	groups, ok := attestations[known]
	if !ok {
		for key := range attestations {
			return field.ErrorList{field.NotSupported(at.Key(key), key, []string{known})}
		}
	}
	at = at.Key(known)
	if len(groups) != 1 {
		return field.ErrorList{field.Invalid(at, groups, "must specify a single value")}
	}
	group := groups[0]
	switch group {
	case "":
		return field.ErrorList{field.Invalid(at.Index(0), group, "may not be an empty string")}
	case "*":
		return nil
	}
	var errs field.ErrorList
	for _, reason := range validation.IsDNS1123Subdomain(group) {
		errs = append(errs, field.Invalid(at.Index(0), group, "must specify a valid API Group: "+reason))
	}
	return errs
}
