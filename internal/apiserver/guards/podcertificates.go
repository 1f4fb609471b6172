package apiserver

import (
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/apiserver/admission/signerauthz"
	"skiff/internal/catalog"
)

// guardPodCertificates lets only those change the status of a PodCertificateRequest, which holds the certificate, who may sign for its signer.
func (s *Server) guardPodCertificates() {
	s.endpoint(certificatesv1.GroupName, "v1", "podcertificaterequests").mayWrite = func(rq *Request, obj, old catalog.Object) error {
		if old == nil || rq.Route.Subresource != "status" {
			return nil
		}
		request, before := obj.(*certificatesv1.PodCertificateRequest), old.(*certificatesv1.PodCertificateRequest)
		signer := before.Spec.SignerName
		if equality.Semantic.DeepEqual(request.Status, before.Status) || signerauthz.Allowed(rq.Ctx, s.identity.authorizer, rq.User, "sign", signer) {
			return nil
		}
		return rq.invalid(obj, field.ErrorList{field.Forbidden(field.NewPath("spec", "signerName"),
			fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q", rq.User.Username, signer))})
	}
}
