package certificates

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

// validatePodCertificateStatus allows the status of a request to change once: when it is issued, denied or failed.
func validatePodCertificateStatus(new, old *certificatesv1.PodCertificateRequest, now time.Time) field.ErrorList {
	root := check.At(nil)
	status := root.Child("status")
	validateOutcomes(status, new.Status.Conditions)
	if len(root.Errors()) > 0 {
		return root.Errors()
	}
	same := func(a, b *certificatesv1.PodCertificateRequestStatus, detail string) {
		if !apiequality.Semantic.DeepEqual(a, b) {
			root.Invalid("status", field.OmitValueType{}, detail)
		}
	}
	switch outcome := podCertificateState(new); {
	case podCertificateState(old) != "Pending":
		same(&new.Status, &old.Status, "immutable after PodCertificateRequest is issued, denied, or failed")
	case outcome == "Pending":
		same(&new.Status, &old.Status, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)
	case outcome == certificatesv1.PodCertificateRequestConditionTypeIssued:
		validateIssued(root, new, old, now)
	default:
		same(&new.Status, &certificatesv1.PodCertificateRequestStatus{Conditions: new.Status.Conditions},
			"non-condition status fields must be empty when denying or failing the PodCertificateRequest")
	}
	return root.Errors()
}

// validateOutcomes requires at most one condition, of a known type and with status True.
func validateOutcomes(status *check.Part, conditions []metav1.Condition) {
	known := []string{certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied,
		certificatesv1.PodCertificateRequestConditionTypeFailed}
	outcomes := 0
	for i, c := range conditions {
		p := status.Child("conditions").Child(fmt.Sprintf("[%d]", i))
		switch c.Type {
		case known[0], known[1], known[2]:
			if outcomes++; outcomes > 1 {
				p.Invalid("type", c.Type, `There may be at most one condition with type "Issued", "Denied", or "Failed"`)
			}
			check.OneOf(p, "status", c.Status, metav1.ConditionTrue)
		default:
			check.OneOf(p, "type", c.Type, known...)
		}
	}
	status.Add(metav1validation.ValidateConditions(conditions, status.Path("conditions"))...)
}

// refreshMargin is the minimum time between beginRefreshAt and either end of the certificate's validity.
const refreshMargin = 10 * time.Minute

// validateIssued validates an issued certificate, up to the first error.
func validateIssued(root *check.Part, new, old *certificatesv1.PodCertificateRequest, now time.Time) {
	s, p := &new.Status, root.Child("status")
	refuse := func(name string, value any, detail string) { p.Invalid(name, value, detail) }
	if len(s.CertificateChain) > maxIssuedChain {
		p.Add(field.TooLong(p.Path("certificateChain"), s.CertificateChain, maxIssuedChain))
		return
	}
	leaf, rest, msg := leafOf(s.CertificateChain)
	if msg != "" {
		refuse("certificateChain", s.CertificateChain, msg)
		return
	}
	validateLeafNames(p, leaf)
	request, err := x509.ParseCertificateRequest(old.Spec.StubPKCS10Request)
	if err != nil {
		root.Child("spec").Invalid("stubPKCS10Request", field.OmitValueType{}, "must be a valid PKCS#10 CSR")
		return
	}
	if key, ok := request.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok && !key.Equal(leaf.PublicKey) {
		refuse("certificateChain", s.CertificateChain, "leaf certificate was not issued to the requested public key")
		return
	}
	p.Present("notBefore", s.NotBefore != nil, "must be present and consistent with the issued certificate")
	p.Present("notAfter", s.NotAfter != nil, "must be present and consistent with the issued certificate")
	p.Present("beginRefreshAt", s.BeginRefreshAt != nil, "must be present and in the range [notbefore+10min, notafter-10min]")
	if len(root.Errors()) > 0 {
		return
	}
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	maxLife := *new.Spec.MaxExpirationSeconds
	switch {
	case !s.NotBefore.Time.Equal(leaf.NotBefore):
		refuse("notBefore", s.NotBefore.Time, "must be set to the NotBefore time encoded in the leaf certificate")
	case now.Sub(s.NotBefore.Time).Abs() >= 5*time.Minute:
		refuse("notBefore", s.NotBefore.Time, "must be set to within 5 minutes of kube-apiserver's current time")
	case !s.NotAfter.Time.Equal(leaf.NotAfter):
		refuse("notAfter", s.NotAfter.Time, "must be set to the NotAfter time encoded in the leaf certificate")
	case life < time.Hour:
		refuse("certificateChain", life, "leaf certificate lifetime must be >= 1 hour")
	case life > time.Duration(maxLife)*time.Second:
		refuse("certificateChain", life, fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%d)", maxLife))
	case s.BeginRefreshAt.Time.Before(s.NotBefore.Time.Add(refreshMargin)):
		refuse("beginRefreshAt", s.BeginRefreshAt.Time, "must be at least 10 minutes after status.notBefore")
	case s.BeginRefreshAt.Time.After(s.NotAfter.Time.Add(-refreshMargin)):
		refuse("beginRefreshAt", s.BeginRefreshAt.Time, "must be at least 10 minutes before status.notAfter")
	default:
		if msg := intermediatesError(rest); msg != "" {
			refuse("certificateChain", s.CertificateChain, msg)
		}
	}
}

// leafOf returns the first certificate of a chain and what follows it, or what is wrong with it.
func leafOf(chain string) (*x509.Certificate, []byte, string) {
	block, rest := pem.Decode([]byte(chain))
	if block == nil {
		return nil, nil, "issued certificate chain must contain at least one certificate"
	}
	if block.Type != certificate {
		return nil, nil, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks"
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, "leaf certificate does not parse as valid X.509"
	}
	return leaf, rest, ""
}

func intermediatesError(rest []byte) string {
	for block, rest := pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certificate {
			return "issued certificate chain must consist entirely of CERTFICATE PEM blocks"
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "intermediate certificate does not parse as valid X.509"
		}
	}
	return ""
}

func validateLeafNames(p *check.Part, leaf *x509.Certificate) {
	for _, name := range leaf.DNSNames {
		if name == "" {
			p.Invalid("certificateChain", name, "leaf certificate should not contain empty DNSName")
		}
		if strings.Contains(name, "..") {
			p.Invalid("certificateChain", name, "leaf certificate's DNSName should not contain '..'")
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			p.Invalid("certificateChain", name, "leaf certificate's DNSName should not start or end with '.'")
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			p.Invalid("certificateChain", address, "leaf certificate should not contain invalid EmailAddress")
		}
	}
}
