package certificates

import (
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
)

var CertificateSigningRequest = catalog.Resource[certificatesv1.CertificateSigningRequest]{
	Group: group, Version: "v1", Kind: "CertificateSigningRequest", Plural: "certificatesigningrequests", Short: []string{"csr"},
	Name: func(name string, prefix bool) []string {
		if prefix {
			return content.IsPathSegmentPrefix(name)
		}
		return content.IsPathSegmentName(name)
	},
	UnconditionalUpdate: true,
	PrepareCreate:       func(c *certificatesv1.CertificateSigningRequest, r catalog.Request) { setRequester(&c.Spec, &r.User) },
	PrepareUpdate:       func(new, old *certificatesv1.CertificateSigningRequest) { new.Spec = old.Spec },
	ResetFields:         []string{"spec"},
	Validate:            func(c *certificatesv1.CertificateSigningRequest) field.ErrorList { return validateCSR(c, nil).Errors() },
	ValidateUpdate: func(new, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
		return validateCSRUpdate(new, old, mainEndpoint)
	},
	Status: &catalog.Edit[certificatesv1.CertificateSigningRequest]{
		PrepareUpdate: prepareCSRStatus,
		ResetFields:   []string{"status.conditions"},
		ValidateUpdate: func(new, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
			return validateCSRUpdate(new, old, statusEndpoint)
		},
	},
	Edits: []catalog.Edit[certificatesv1.CertificateSigningRequest]{{
		Name:          "approval",
		PrepareUpdate: prepareCSRApproval,
		ResetFields:   []string{"spec", "status.certificate"},
		ValidateUpdate: func(new, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
			return validateCSRUpdate(new, old, approvalEndpoint)
		},
	}},
	Fields: []catalog.Field[certificatesv1.CertificateSigningRequest]{{Name: "spec.signerName",
		Value: func(c *certificatesv1.CertificateSigningRequest) string { return c.Spec.SignerName }}},
	Columns:  csrColumns(),
	Complete: true,
}

// setRequester sets the requester to the request's user, whatever the client sent.
func setRequester(s *certificatesv1.CertificateSigningRequestSpec, user *authenticationv1.UserInfo) {
	s.Username, s.UID, s.Groups, s.Extra = user.Username, user.UID, user.Groups, nil
	if len(user.Extra) > 0 {
		s.Extra = make(map[string]certificatesv1.ExtraValue, len(user.Extra))
		for key, values := range user.Extra {
			s.Extra[key] = certificatesv1.ExtraValue(values)
		}
	}
}

// prepareCSRStatus restores the conditions of approval and denial, which a signer may not change, unless their number changed: validation refuses that.
func prepareCSRStatus(new, old *certificatesv1.CertificateSigningRequest) {
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied} {
		from, to := conditionsOf(old, t), conditionsOf(new, t)
		if len(from) != len(to) {
			continue
		}
		for i := range from {
			*to[i] = *from[i]
		}
	}
	stampConditions(new, old, metav1.Now())
}

func prepareCSRApproval(new, old *certificatesv1.CertificateSigningRequest) {
	stampConditions(new, old, metav1.Now())
	conditions := new.Status.Conditions
	new.Spec, new.Status = old.Spec, old.Status
	new.Status.Conditions = conditions
}

// stampConditions sets the missing times of conditions: now, or the old transition time if the status did not change.
func stampConditions(new, old *certificatesv1.CertificateSigningRequest, now metav1.Time) {
	for i := range new.Status.Conditions {
		c := &new.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, before := range conditionsOf(old, c.Type) {
			if before.Status == c.Status && !before.LastTransitionTime.IsZero() {
				c.LastTransitionTime = before.LastTransitionTime
				break
			}
		}
	}
}

func conditionsOf(c *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) []*certificatesv1.CertificateSigningRequestCondition {
	var found []*certificatesv1.CertificateSigningRequestCondition
	for i := range c.Status.Conditions {
		if c.Status.Conditions[i].Type == t {
			found = append(found, &c.Status.Conditions[i])
		}
	}
	return found
}

func csrColumns() []catalog.Column[certificatesv1.CertificateSigningRequest] {
	type csr = certificatesv1.CertificateSigningRequest
	spec := certificatesv1beta1.CertificateSigningRequestSpec{}.SwaggerDoc()
	return []catalog.Column[csr]{
		catalog.NameColumn[csr](),
		catalog.AgeColumn[csr](),
		{Name: "SignerName", Description: spec["signerName"], Cell: func(c *csr, _ time.Time) any { return orNone(c.Spec.SignerName) }},
		{Name: "Requestor", Description: spec["request"], Cell: func(c *csr, _ time.Time) any { return c.Spec.Username }},
		{Name: "RequestedDuration", Description: spec["expirationSeconds"], Cell: func(c *csr, _ time.Time) any {
			if c.Spec.ExpirationSeconds == nil {
				return "<none>"
			}
			return duration.HumanDuration(time.Duration(*c.Spec.ExpirationSeconds) * time.Second)
		}},
		{Name: "Condition", Description: certificatesv1beta1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"],
			Cell: func(c *csr, _ time.Time) any { return csrState(c) }},
	}
}

func csrState(c *certificatesv1.CertificateSigningRequest) string {
	has := func(t certificatesv1.RequestConditionType) bool { return len(conditionsOf(c, t)) > 0 }
	states := []string{"Pending"}
	switch {
	case has(certificatesv1.CertificateDenied):
		states[0] = "Denied"
	case has(certificatesv1.CertificateApproved):
		states[0] = "Approved"
	}
	if has(certificatesv1.CertificateFailed) {
		states = append(states, "Failed")
	}
	if len(c.Status.Certificate) > 0 {
		states = append(states, "Issued")
	}
	return strings.Join(states, ",")
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}
