// Package certificatesigning lets only those issue the certificate of a CertificateSigningRequest, or fail it, who may sign for its signer.
package certificatesigning

import (
	"bytes"
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/signerauthz"
	"skiff/internal/apiserver/authz"
)

// New returns the plugin. The authorizer is asked for the verb sign on the signer.
func New(authorizer authz.Authorizer) admission.Plugin { return &plugin{authorizer} }

type plugin struct{ authorizer authz.Authorizer }

var signingRequests = certificatesv1.Resource("certificatesigningrequests")

func (*plugin) Name() string { return "CertificateSigning" }

// Handles updates of certificatesigningrequests/status.
func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Subresource == "status" && a.Operation == admission.Update && a.Is(signingRequests)
}

// Validate asks only if the certificate or the conditions change, and goes by the signer of the stored request.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	old, ok := a.Old.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return a.Forbidden(fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.Old))
	}
	csr, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return a.Forbidden(fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.Object))
	}
	if bytes.Equal(old.Status.Certificate, csr.Status.Certificate) && equality.Semantic.DeepEqual(old.Status.Conditions, csr.Status.Conditions) {
		return nil
	}
	if !signerauthz.Allowed(ctx, p.authorizer, a.User, "sign", old.Spec.SignerName) {
		return a.Forbidden(fmt.Errorf("user not permitted to sign requests with signerName %q", old.Spec.SignerName))
	}
	return nil
}
