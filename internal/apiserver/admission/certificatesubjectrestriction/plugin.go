package certificatesubjectrestriction

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"

	"skiff/internal/apiserver/admission"
)

// New returns the plugin.
func New() admission.Plugin { return plugin{} }

type plugin struct{}

var signingRequests = certificatesv1.Resource("certificatesigningrequests")

const mastersGroup = "system:masters"

func (plugin) Name() string { return "CertificateSubjectRestriction" }

// Handles reports whether the write creates a CertificateSigningRequest.
func (plugin) Handles(a *admission.Attributes) bool {
	return a.Subresource == "" && a.Operation == admission.Create && a.Is(signingRequests)
}

// Validate refuses requests to the signer kubernetes.io/kube-apiserver-client whose organizations, the groups of the user, include system:masters.
func (plugin) Validate(_ context.Context, a *admission.Attributes) error {
	csr, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return a.Forbidden(fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.Object))
	}
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	request, err := parse(csr.Spec.Request)
	if err != nil {
		return a.Forbidden(fmt.Errorf("failed to parse CSR: %v", err))
	}
	if slices.Contains(request.Subject.Organization, mastersGroup) {
		return a.Forbidden(fmt.Errorf("use of %s signer with system:masters group is not allowed", certificatesv1.KubeAPIServerClientSignerName))
	}
	return nil
}

func parse(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
