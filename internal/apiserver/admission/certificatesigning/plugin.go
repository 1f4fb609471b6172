package certificatesigning

import (
	"bytes"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/signerauthz"
	"skiff/internal/apiserver/authz"
)

// New returns the plugin.
func New(authorizer authz.Authorizer) admission.Plugin {
	return signerauthz.New(authorizer, signerauthz.Check{Plugin: "CertificateSigning", Verb: "sign",
		Denial: "user not permitted to sign requests with signerName %q", Handles: handles, Signer: signer})
}

var signingRequests = certificatesv1.Resource("certificatesigningrequests")

// handles reports whether the write is an update of certificatesigningrequests/status.
func handles(a *admission.Attributes) bool {
	return a.Subresource == "status" && a.Operation == admission.Update && a.Is(signingRequests)
}

// signer returns the signer of the stored request. The verb is needed only if the certificate or the conditions change.
func signer(a *admission.Attributes) (name string, needed bool, err error) {
	old, ok := a.Old.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return "", false, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.Old)
	}
	csr, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return "", false, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.Object)
	}
	unchanged := bytes.Equal(old.Status.Certificate, csr.Status.Certificate) && equality.Semantic.DeepEqual(old.Status.Conditions, csr.Status.Conditions)
	return old.Spec.SignerName, !unchanged, nil
}
