// Package authn says who sent a request. An Authenticator knows one way of telling; a Chain asks several in order, and the first
// that recognizes the request wins. Each way lives in a folder of its own:
//
//	requestheader   a front proxy says it in headers
//	clientcert      a client certificate says it
//	bearer          a bearer token says it; whose token it is, one of these knows:
//	  tokenfile       a file of tokens
//	  serviceaccount  signed tokens of service accounts (jws is how they are signed)
//	  bootstraptoken  Secrets in kube-system, for machines that join
//	impersonation   somebody asks to be served as somebody else
//
// and config puts them together from the server's flags.
package authn

import (
	"context"
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// User is who sent a request. Authenticators hand out the same User many times: whoever wants to change one makes a copy.
type User = authenticationv1.UserInfo

// Authenticator recognizes requests by one kind of credential.
type Authenticator interface {
	// Authenticate returns who sent the request. It returns nil and no error if the request carries no credential of its kind, and an
	// error if it carries one that is not good. No error text contains a secret.
	Authenticate(*http.Request) (*User, error)
}

// TokenAuthenticator recognizes bearer tokens.
type TokenAuthenticator interface {
	// AuthenticateToken returns whose token it is, and for which of the audiences asked for it is good; to ask for none is to ask for
	// the server's own. It returns nil and no error if the token is not of its kind, and an error if it is and not good.
	AuthenticateToken(ctx context.Context, token string, audiences []string) (*User, []string, error)
}

// Func is an Authenticator that is one function.
type Func func(*http.Request) (*User, error)

// Authenticate calls f.
func (f Func) Authenticate(r *http.Request) (*User, error) { return f(r) }

// Chain asks its members in order; the first that recognizes the request wins. If none does, the errors come back together.
type Chain []Authenticator

// Authenticate asks the members.
func (c Chain) Authenticate(r *http.Request) (*User, error) {
	var errs []error
	for _, a := range c {
		user, err := a.Authenticate(r)
		if user != nil && err == nil {
			return user, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return nil, aggregate(errs)
}

// AuthenticateToken asks the members that know tokens.
func (c Chain) AuthenticateToken(ctx context.Context, token string, audiences []string) (*User, []string, error) {
	var tokens Tokens
	for _, a := range c {
		if t, ok := a.(TokenAuthenticator); ok {
			tokens = append(tokens, t)
		}
	}
	return tokens.AuthenticateToken(ctx, token, audiences)
}

// Tokens asks its members in order; the first that recognizes the token wins. If none does, the errors come back together.
type Tokens []TokenAuthenticator

// AuthenticateToken asks the members.
func (t Tokens) AuthenticateToken(ctx context.Context, token string, audiences []string) (*User, []string, error) {
	var errs []error
	for _, a := range t {
		user, good, err := a.AuthenticateToken(ctx, token, audiences)
		if user != nil && err == nil {
			return user, good, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return nil, nil, aggregate(errs)
}

// aggregate avoids that no errors become an error that is not nil.
func aggregate(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return utilerrors.NewAggregate(errs)
}

// ForServer makes a TokenAuthenticator of a function that knows nothing of audiences: its tokens are good for the server's own.
func ForServer(own []string, authenticate func(ctx context.Context, token string) (*User, error)) TokenAuthenticator {
	return forServer{own, authenticate}
}

type forServer struct {
	own          []string
	authenticate func(ctx context.Context, token string) (*User, error)
}

func (f forServer) AuthenticateToken(ctx context.Context, token string, audiences []string) (*User, []string, error) {
	good := f.own
	if len(audiences) > 0 {
		if good = Common(audiences, f.own); len(good) == 0 {
			return nil, nil, nil
		}
	}
	user, err := f.authenticate(ctx, token)
	if user == nil || err != nil {
		return nil, nil, err
	}
	return user, good, nil
}

// Common returns the audiences asked for that are also in others.
func Common(asked, others []string) []string {
	var both []string
	for _, a := range asked {
		if slices.Contains(others, a) {
			both = append(both, a)
		}
	}
	return both
}

// Notes takes what an authenticator has to say besides who the user is.
type Notes interface {
	// Warn tells the client something.
	Warn(ctx context.Context, text string)
	// Annotate tells the audit log something.
	Annotate(ctx context.Context, key, value string)
}

// NoNotes is for nobody who listens.
type NoNotes struct{}

// Warn does nothing.
func (NoNotes) Warn(context.Context, string) {}

// Annotate does nothing.
func (NoNotes) Annotate(context.Context, string, string) {}

type inProcess struct{}

// InProcess marks requests that a component of this process sends without a network in between, as coming from user.
func InProcess(ctx context.Context, user *User) context.Context {
	return context.WithValue(ctx, inProcess{}, user)
}

// Components recognizes requests marked by InProcess. No request from outside can carry such a mark.
var Components = Func(func(r *http.Request) (*User, error) {
	user, _ := r.Context().Value(inProcess{}).(*User)
	return user, nil
})
