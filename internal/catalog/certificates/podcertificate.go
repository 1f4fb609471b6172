package certificates

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/signer"
)

var PodCertificateRequest = catalog.Resource[certificatesv1.PodCertificateRequest]{
	Group: group, Version: "v1", Kind: "PodCertificateRequest", Plural: "podcertificaterequests", StorageVersion: "v1beta1", Namespaced: true,
	Name: validation.NameIsDNSSubdomain,
	Default: func(r *certificatesv1.PodCertificateRequest) {
		if r.Spec.MaxExpirationSeconds == nil {
			seconds := int32(day)
			r.Spec.MaxExpirationSeconds = &seconds
		}
	},
	Validate:       validatePodCertificate,
	ValidateUpdate: validatePodCertificateUpdate,
	Status: &catalog.Edit[certificatesv1.PodCertificateRequest]{
		PrepareUpdate: func(new, old *certificatesv1.PodCertificateRequest) { metav1.ResetObjectMetaForStatus(new, old) },
		ResetFields:   []string{"metadata"},
		ValidateUpdate: func(new, old *certificatesv1.PodCertificateRequest) field.ErrorList {
			return validatePodCertificateStatus(new, old, time.Now())
		},
	},
	Fields: []catalog.Field[certificatesv1.PodCertificateRequest]{
		{Name: "spec.signerName", Value: func(r *certificatesv1.PodCertificateRequest) string { return r.Spec.SignerName }},
		{Name: "spec.podName", Value: func(r *certificatesv1.PodCertificateRequest) string { return r.Spec.PodName }},
		{Name: "spec.nodeName", Value: func(r *certificatesv1.PodCertificateRequest) string { return string(r.Spec.NodeName) }},
	},
	Columns:  podCertificateColumns(),
	Complete: true,
}

const (
	day             = 24 * 60 * 60
	maxUID          = 128
	maxStubRequest  = 10 << 10
	maxIssuedChain  = 100 << 10
	unlessProven    = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
	unknownKeyTypes = "unknown public key type; supported types are Ed25519, ECDSA, and RSA"
)

func validatePodCertificate(r *certificatesv1.PodCertificateRequest) field.ErrorList {
	s, spec := &r.Spec, check.At(field.NewPath("spec"))
	signer.Name(spec, s.SignerName)
	if len(s.UnverifiedUserAnnotations) > 0 {
		signer.UserAnnotations(spec, "unverifiedUserAnnotations", s.UnverifiedUserAnnotations)
	}
	uid := func(name string, uid types.UID) {
		if uid == "" {
			spec.Invalid(name, uid, "must not be empty")
		}
		if len(uid) > maxUID {
			spec.Add(field.TooLong(spec.Path(name), uid, maxUID))
		}
	}
	spec.Format("podName", s.PodName, utilvalidation.IsDNS1123Subdomain)
	uid("podUID", s.PodUID)
	spec.Format("serviceAccountName", s.ServiceAccountName, utilvalidation.IsDNS1123Subdomain)
	uid("serviceAccountUID", s.ServiceAccountUID)
	spec.Format("nodeName", string(s.NodeName), utilvalidation.IsDNS1123Subdomain)
	uid("nodeUID", s.NodeUID)
	limit := signer.MaxLife(s.SignerName)
	if life := *s.MaxExpirationSeconds; life < signer.MinLife || life > limit {
		spec.Invalid("maxExpirationSeconds", life, fmt.Sprintf("must be in the range [%d, %d]", signer.MinLife, limit))
	}
	validateStubRequest(spec, s.StubPKCS10Request)
	return spec.Errors()
}

// validateStubRequest validates the request that proves that the pod's node has the key. Its other content is ignored.
func validateStubRequest(spec *check.Part, der []byte) {
	const name = "stubPKCS10Request"
	if len(der) == 0 {
		spec.Invalid("", field.OmitValueType{}, unlessProven)
		return
	}
	if len(der) > maxStubRequest {
		spec.Add(field.TooLong(spec.Path(name), der, maxStubRequest))
		return
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		spec.Invalid(name, field.OmitValueType{}, "must be a valid PKCS#10 CSR")
		return
	}
	switch key := request.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if c := key.Curve; c != elliptic.P256() && c != elliptic.P384() && c != elliptic.P521() {
			spec.Invalid(name, "curve "+c.Params().Name, "elliptic public keys must use curve P256, P384, or P521")
			return
		}
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			spec.Invalid(name, fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096")
			return
		}
	default:
		spec.Invalid(name, field.OmitValueType{}, unknownKeyTypes)
		return
	}
	if request.CheckSignature() != nil {
		spec.Invalid(name, field.OmitValueType{}, "invalid signature")
	}
}

// shownSpec is the spec of a request as upstream's errors print it, with fields of earlier versions.
type shownSpec struct {
	SignerName                       string
	PodName                          string
	PodUID                           types.UID
	ServiceAccountName               string
	ServiceAccountUID                types.UID
	NodeName                         types.NodeName
	NodeUID                          types.UID
	MaxExpirationSeconds             *int32
	PKIXPublicKey, ProofOfPossession []byte
	StubPKCS10Request                []byte
	UnverifiedUserAnnotations        map[string]string
}

func validatePodCertificateUpdate(new, old *certificatesv1.PodCertificateRequest) field.ErrorList {
	if apiequality.Semantic.DeepEqual(&new.Spec, &old.Spec) {
		return nil
	}
	s := &new.Spec
	return field.ErrorList{field.Invalid(field.NewPath("spec"), shownSpec{
		SignerName: s.SignerName, PodName: s.PodName, PodUID: s.PodUID, ServiceAccountName: s.ServiceAccountName,
		ServiceAccountUID: s.ServiceAccountUID, NodeName: s.NodeName, NodeUID: s.NodeUID, MaxExpirationSeconds: s.MaxExpirationSeconds,
		StubPKCS10Request: s.StubPKCS10Request, UnverifiedUserAnnotations: s.UnverifiedUserAnnotations,
	}, validation.FieldImmutableErrorMsg)}
}

func podCertificateColumns() []catalog.Column[certificatesv1.PodCertificateRequest] {
	type request = certificatesv1.PodCertificateRequest
	doc := certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()
	column := func(name, field string, of func(*certificatesv1.PodCertificateRequestSpec) string) catalog.Column[request] {
		return catalog.Column[request]{Name: name, Description: doc[field],
			Cell: func(r *request, _ time.Time) any { return of(&r.Spec) }}
	}
	return []catalog.Column[request]{
		catalog.NameColumn[request](),
		column("PodName", "podName", func(s *certificatesv1.PodCertificateRequestSpec) string { return s.PodName }),
		column("ServiceAccountName", "serviceAccountName", func(s *certificatesv1.PodCertificateRequestSpec) string { return s.ServiceAccountName }),
		column("NodeName", "nodeName", func(s *certificatesv1.PodCertificateRequestSpec) string { return string(s.NodeName) }),
		column("SignerName", "signerName", func(s *certificatesv1.PodCertificateRequestSpec) string { return s.SignerName }),
		{Name: "State", Description: "Is the request Pending, Issued, Denied, or Failed?",
			Cell: func(r *request, _ time.Time) any { return podCertificateState(r) }},
		column("UnverifiedUserAnnotations", "unverifiedUserAnnotations", func(s *certificatesv1.PodCertificateRequestSpec) string {
			return labels.FormatLabels(s.UnverifiedUserAnnotations)
		}),
	}
}

func podCertificateState(r *certificatesv1.PodCertificateRequest) string {
	state := "Pending"
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied,
			certificatesv1.PodCertificateRequestConditionTypeFailed:
			state = c.Type
		}
	}
	return state
}
