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
	s.endpoint(certificatesv1.GroupName, "v1", "podcertificaterequests").mayWrite = func(rq *request, obj, old catalog.Object) error {
		if old == nil || rq.route.subresource != "status" {
			return nil
		}
		request, before := obj.(*certificatesv1.PodCertificateRequest), old.(*certificatesv1.PodCertificateRequest)
		signer := before.Spec.SignerName
		if equality.Semantic.DeepEqual(request.Status, before.Status) || signerauthz.Allowed(rq.ctx, s.identity.authorizer, rq.user, "sign", signer) {
			return nil
		}
		return rq.invalid(obj, field.ErrorList{field.Forbidden(field.NewPath("spec", "signerName"),
			fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q", rq.user.Username, signer))})
	}
}
