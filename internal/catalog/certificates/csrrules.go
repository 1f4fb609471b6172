package certificates

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/signer"
)

// endpoint is the endpoint through which a request is updated, which decides what may change.
type endpoint int

const (
	mainEndpoint endpoint = iota
	statusEndpoint
	approvalEndpoint
)

const (
	legacySigner  = "kubernetes.io/legacy-unknown"
	minExpiration = 600
)

var usages = func() []certificatesv1.KeyUsage {
	all := []certificatesv1.KeyUsage{
		certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature, certificatesv1.UsageContentCommitment,
		certificatesv1.UsageKeyEncipherment, certificatesv1.UsageKeyAgreement, certificatesv1.UsageDataEncipherment,
		certificatesv1.UsageCertSign, certificatesv1.UsageCRLSign, certificatesv1.UsageEncipherOnly, certificatesv1.UsageDecipherOnly,
		certificatesv1.UsageAny, certificatesv1.UsageServerAuth, certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning,
		certificatesv1.UsageEmailProtection, certificatesv1.UsageSMIME, certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel,
		certificatesv1.UsageIPsecUser, certificatesv1.UsageTimestamping, certificatesv1.UsageOCSPSigning,
		certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC,
	}
	slices.Sort(all)
	return all
}()

// validateCSR validates a request. What was already invalid in the old one, if there is one, may stay.
func validateCSR(c, old *certificatesv1.CertificateSigningRequest) *check.Part {
	root := check.At(nil)
	s, spec := &c.Spec, root.Child("spec")
	if err := requestError(s.Request); err != nil {
		spec.Invalid("request", s.Request, err.Error())
	}
	spec.Present("usages", len(s.Usages) > 0, "")
	if old == nil || !slices.ContainsFunc(old.Spec.Usages, unknownUsage) {
		for i, usage := range s.Usages {
			check.OneOf(spec.Item("usages", i), "", usage, usages...)
		}
	}
	if old == nil || !hasDuplicates(old.Spec.Usages) {
		for i, usage := range s.Usages {
			if slices.Contains(s.Usages[:i], usage) {
				spec.Add(field.Duplicate(spec.Path("usages").Index(i), usage))
			}
		}
	}
	if s.SignerName == legacySigner && (old == nil || old.Spec.SignerName != legacySigner) {
		spec.Invalid("signerName", s.SignerName, "the legacy signerName is not allowed via this API version")
	} else {
		signer.Name(spec, s.SignerName)
	}
	if e := s.ExpirationSeconds; e != nil && *e < minExpiration {
		spec.Invalid("expirationSeconds", *e, "may not specify a duration less than 600 seconds (10 minutes)")
	}
	status := root.Child("status")
	validateCSRConditions(status, c, old)
	if old == nil || !bytes.Equal(c.Status.Certificate, old.Status.Certificate) && chainError(old.Status.Certificate) == nil {
		if err := chainError(c.Status.Certificate); err != nil {
			status.Invalid("certificate", "<certificate data>", err.Error())
		}
	}
	return root
}

func unknownUsage(u certificatesv1.KeyUsage) bool { return !slices.Contains(usages, u) }

func hasDuplicates[V comparable](list []V) bool {
	for i, v := range list {
		if slices.Contains(list[:i], v) {
			return true
		}
	}
	return false
}

// requestError returns what is wrong with a PEM-encoded PKCS#10 request.
func requestError(text []byte) error {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	return request.CheckSignature()
}

// chainError returns what is wrong with the issued certificates, if there are any.
func chainError(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	for blocks := 0; ; blocks++ {
		block, rest := pem.Decode(text)
		switch {
		case block == nil && blocks == 0:
			return errors.New("must contain at least one CERTIFICATE PEM block")
		case block == nil:
			return nil
		case block.Type != certificate:
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		case len(block.Headers) > 0:
			return errors.New("no PEM block headers are permitted")
		}
		certs, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certs) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
		text = rest
	}
}

func validateCSRConditions(status *check.Part, c, old *certificatesv1.CertificateSigningRequest) {
	types := func(c *certificatesv1.CertificateSigningRequest) []certificatesv1.RequestConditionType {
		var list []certificatesv1.RequestConditionType
		for i := range c.Status.Conditions {
			list = append(list, c.Status.Conditions[i].Type)
		}
		return list
	}
	now := types(c)
	var before []certificatesv1.RequestConditionType
	if old != nil {
		before = types(old)
	}
	anyDuplicate := hasDuplicates(before)
	anyType := slices.Contains(before, "")
	for i, t := range now {
		p := status.Item("conditions", i)
		if t == "" && !anyType {
			p.Required("type", "")
		}
		value := c.Status.Conditions[i].Status
		switch {
		case value == "":
			p.Required("status", "")
		case t == certificatesv1.CertificateApproved || t == certificatesv1.CertificateDenied || t == certificatesv1.CertificateFailed:
			check.OneOf(p, "status", value, corev1.ConditionTrue)
		default:
			check.OneOf(p, "status", value, corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)
		}
		if !anyDuplicate && slices.Contains(now[:i], t) {
			p.Add(field.Duplicate(p.Path("type"), t))
		}
	}
	if contradictory(now) && !contradictory(before) {
		status.Later().Invalid("conditions", `{conditions[{"type": "Approved"}], conditions[{"type": "Denied"}]}`,
			"must specify at most one of: `conditions[{\"type\": \"Approved\"}]`, `conditions[{\"type\": \"Denied\"}]`")
	}
}

func contradictory(types []certificatesv1.RequestConditionType) bool {
	return slices.Contains(types, certificatesv1.CertificateApproved) && slices.Contains(types, certificatesv1.CertificateDenied)
}

func validateCSRUpdate(new, old *certificatesv1.CertificateSigningRequest, at endpoint) field.ErrorList {
	root := validateCSR(new, old)
	status := root.Child("status")
	for _, t := range []certificatesv1.RequestConditionType{
		certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		if len(conditionsOf(new, t)) < len(conditionsOf(old, t)) {
			status.Forbidden("conditions", fmt.Sprintf("updates may not remove a condition of type %q", t))
		}
	}
	if at != approvalEndpoint {
		for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied} {
			if len(conditionsOf(new, t)) > len(conditionsOf(old, t)) {
				status.Forbidden("conditions", fmt.Sprintf("updates may not add a condition of type %q", t))
			}
		}
	}
	if !bytes.Equal(new.Status.Certificate, old.Status.Certificate) {
		if at != statusEndpoint {
			status.Forbidden("certificate", "updates may not set certificate content")
		} else if len(old.Status.Certificate) > 0 {
			status.Forbidden("certificate", "updates may not modify existing certificate content")
		}
	}
	return root.Errors()
}
