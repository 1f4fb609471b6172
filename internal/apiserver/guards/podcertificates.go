package guards

import (
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/apiserver/admission/signerauthz"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/catalog"
)

// podCertificateRequest guards the status of PodCertificateRequests, which has the certificate: only users who may sign for the signer may change it.
func (g *guards) podCertificateRequest(rq *verbs.Request, obj, old catalog.Object) error {
	if old == nil || rq.Route.Subresource != "status" {
		return nil
	}
	changed, before := obj.(*certificatesv1.PodCertificateRequest), old.(*certificatesv1.PodCertificateRequest)
	signer := before.Spec.SignerName
	if equality.Semantic.DeepEqual(changed.Status, before.Status) || signerauthz.Allowed(rq.Ctx, rq.API.Authorizer, rq.User, "sign", signer) {
		return nil
	}
	return invalid(rq, obj, field.ErrorList{field.Forbidden(field.NewPath("spec", "signerName"),
		fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q", rq.User.Username, signer))})
}
