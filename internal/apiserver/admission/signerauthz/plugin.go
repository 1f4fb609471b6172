package signerauthz

import (
	"context"
	"fmt"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/authz"
)

// Check is what an admission plugin for certificate signers requires: a verb on the signer of the write.
type Check struct {
	Plugin  string // the name of the admission plugin
	Verb    string // approve, sign or attest
	Denial  string // the format of the refusal's reason; its argument is the signer's name
	Handles func(*admission.Attributes) bool
	// Signer returns the name of the write's signer and whether the user needs the verb on it. An error refuses the write.
	Signer func(*admission.Attributes) (name string, needed bool, err error)
}

// New returns an admission plugin that makes the check.
func New(authorizer authz.Authorizer, c Check) admission.Plugin { return &plugin{c, authorizer} }

type plugin struct {
	check      Check
	authorizer authz.Authorizer
}

func (p *plugin) Name() string { return p.check.Plugin }

func (p *plugin) Handles(a *admission.Attributes) bool { return p.check.Handles(a) }

// Validate refuses the write if the user needs the verb on the signer and does not have it.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	signer, needed, err := p.check.Signer(a)
	switch {
	case err != nil:
		return a.Forbidden(err)
	case needed && !Allowed(ctx, p.authorizer, a.User, p.check.Verb, signer):
		return a.Forbidden(fmt.Errorf(p.check.Denial, signer))
	}
	return nil
}
