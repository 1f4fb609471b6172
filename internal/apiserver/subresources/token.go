package subresources

import (
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/verbs"
)

var tokenRequestKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

// requestToken issues a token for a service account: POST serviceaccounts/NAME/token.
func (h *handlers) requestToken(rq *verbs.Request) error {
	if err := requireCreate(rq); err != nil {
		return err
	}
	issuer := h.Authentication.Issuer
	if issuer == nil {
		return response.ErrNotFound
	}
	asked := &authenticationv1.TokenRequest{}
	opts, err := decodeAndAdmit(rq, asked, tokenRequestKind)
	if err != nil {
		return err
	}
	answer, err := issuer.Request(rq.Ctx, rq.Route.Namespace, rq.Route.Name, asked, func(completed *authenticationv1.TokenRequest) error {
		return h.API.Admission.Validate(rq.Ctx, rq.AdmissionAttributes(admission.Create, completed, nil, opts.DryRun), rq.Trace.Stage)
	})
	if err != nil {
		return err
	}
	return rq.SendObject(http.StatusCreated, answer, tokenRequestKind)
}
