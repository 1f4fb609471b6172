package authn

import (
	"context"
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// User is the user of a request. Authenticators return the same User many times: it must be copied before it is changed.
type User = authenticationv1.UserInfo

// Authenticator authenticates requests by one kind of credential.
type Authenticator interface {
	// Authenticate returns the user of the request. It returns nil and no error if the request carries no credential of its kind, and an
	// error if it carries an invalid one. No error text contains a secret.
	Authenticate(*http.Request) (*User, error)
}

// TokenAuthenticator authenticates bearer tokens.
type TokenAuthenticator interface {
	// AuthenticateToken returns the token's user, and those of the given audiences that the token is valid for; no audiences means those of
	// the API server. It returns nil and no error if the token is not of its kind, and an error if it is but is invalid.
	AuthenticateToken(ctx context.Context, token string, audiences []string) (*User, []string, error)
}

// Func is a function that is an Authenticator.
type Func func(*http.Request) (*User, error)

// Authenticate calls f.
func (f Func) Authenticate(r *http.Request) (*User, error) { return f(r) }

// Chain tries its members in order; the first that authenticates the request wins. If none does, their errors are returned together.
type Chain []Authenticator

// Authenticate tries the members in order.
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

// AuthenticateToken tries the members that are TokenAuthenticators.
func (c Chain) AuthenticateToken(ctx context.Context, token string, audiences []string) (*User, []string, error) {
	var tokens Tokens
	for _, a := range c {
		if t, ok := a.(TokenAuthenticator); ok {
			tokens = append(tokens, t)
		}
	}
	return tokens.AuthenticateToken(ctx, token, audiences)
}

// Tokens tries its members in order; the first that authenticates the token wins. If none does, their errors are returned together.
type Tokens []TokenAuthenticator

// AuthenticateToken tries the members in order.
func (t Tokens) AuthenticateToken(ctx context.Context, token string, audiences []string) (*User, []string, error) {
	var errs []error
	for _, a := range t {
		user, valid, err := a.AuthenticateToken(ctx, token, audiences)
		if user != nil && err == nil {
			return user, valid, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return nil, nil, aggregate(errs)
}

// aggregate returns nil for no errors, where NewAggregate would return a nil Aggregate in a non-nil error.
func aggregate(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return utilerrors.NewAggregate(errs)
}

// ForServer returns a TokenAuthenticator of tokens without audiences, which are valid for the given audiences of the API server.
func ForServer(serverAudiences []string, authenticate func(ctx context.Context, token string) (*User, error)) TokenAuthenticator {
	return forServer{serverAudiences, authenticate}
}

type forServer struct {
	serverAudiences []string
	authenticate    func(ctx context.Context, token string) (*User, error)
}

func (f forServer) AuthenticateToken(ctx context.Context, token string, audiences []string) (*User, []string, error) {
	valid := f.serverAudiences
	if len(audiences) > 0 {
		if valid = Common(audiences, f.serverAudiences); len(valid) == 0 {
			return nil, nil, nil
		}
	}
	user, err := f.authenticate(ctx, token)
	if user == nil || err != nil {
		return nil, nil, err
	}
	return user, valid, nil
}

// Common returns the requested audiences that are also in others.
func Common(requested, others []string) []string {
	var both []string
	for _, a := range requested {
		if slices.Contains(others, a) {
			both = append(both, a)
		}
	}
	return both
}

// Notes receives warnings and audit annotations from authenticators.
type Notes interface {
	// Warn adds a warning for the client to the response.
	Warn(ctx context.Context, text string)
	// Annotate adds an annotation to the request's audit event.
	Annotate(ctx context.Context, key, value string)
}

// NoNotes discards warnings and annotations.
type NoNotes struct{}

// Warn does nothing.
func (NoNotes) Warn(context.Context, string) {}

// Annotate does nothing.
func (NoNotes) Annotate(context.Context, string, string) {}

type inProcess struct{}

// InProcess returns a context that marks a request as sent by the user from a component of this process, without a network in between.
func InProcess(ctx context.Context, user *User) context.Context {
	return context.WithValue(ctx, inProcess{}, user)
}

// Components authenticates requests marked by InProcess. No request from outside the process can carry such a mark.
var Components = Func(func(r *http.Request) (*User, error) {
	user, _ := r.Context().Value(inProcess{}).(*User)
	return user, nil
})
