package apiserver

import (
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/response"
)

var tokenRequestKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

// requestToken issues a token for a service account.
func (s *Server) requestToken(rq *Request) error {
	if err := rq.onlyCreate(); err != nil {
		return err
	}
	issuer := s.identity.authentication.Issuer
	if issuer == nil {
		return response.ErrNotFound
	}
	asked := &authenticationv1.TokenRequest{}
	opts, err := rq.receive(asked, tokenRequestKind)
	if err != nil {
		return err
	}
	answer, err := issuer.Request(rq.Ctx, rq.Route.Namespace, rq.Route.Name, asked, func(completed *authenticationv1.TokenRequest) error {
		return s.admission.Validate(rq.Ctx, rq.admission(admission.Create, completed, nil, opts.DryRun), rq.Trace.Stage)
	})
	if err != nil {
		return err
	}
	return rq.Object(http.StatusCreated, answer, tokenRequestKind)
}
