// Package certificateapproval lets only those approve or deny a CertificateSigningRequest who may approve for its signer.
package certificateapproval

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/signerauthz"
	"skiff/internal/apiserver/authz"
)

// New returns the plugin. The authorizer is asked for the verb approve on the signer.
func New(authorizer authz.Authorizer) admission.Plugin { return &plugin{authorizer} }

type plugin struct{ authorizer authz.Authorizer }

var signingRequests = certificatesv1.Resource("certificatesigningrequests")

func (*plugin) Name() string { return "CertificateApproval" }

// Handles updates of certificatesigningrequests/approval.
func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Subresource == "approval" && a.Operation == admission.Update && a.Is(signingRequests)
}

// Validate goes by the signer of the stored request: the new one could name another.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	csr, ok := a.Old.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return a.Forbidden(fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.Old))
	}
	if !signerauthz.Allowed(ctx, p.authorizer, a.User, "approve", csr.Spec.SignerName) {
		return a.Forbidden(fmt.Errorf("user not permitted to approve requests with signerName %q", csr.Spec.SignerName))
	}
	return nil
}
