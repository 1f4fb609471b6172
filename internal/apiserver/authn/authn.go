// Package authn says who sent a request. An Authenticator knows one way of telling; a Chain asks several in order, and the first
// that recognizes the request wins. Each way lives in a file or folder of its own.
package authn

import (
	"context"
	"errors"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// User is who sent a request.
type User = authenticationv1.UserInfo

// Authenticator recognizes requests by one kind of credential.
type Authenticator interface {
	// Authenticate returns who sent the request. It returns nil and no error if the request carries no credential of its kind, and an
	// error if it carries one that is not good.
	Authenticate(*http.Request) (*User, error)
}

// Func is an Authenticator that is one function.
type Func func(*http.Request) (*User, error)

// Authenticate calls f.
func (f Func) Authenticate(r *http.Request) (*User, error) { return f(r) }

// Chain asks its members in order; the first that recognizes the request wins. If none does, the errors are joined.
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
	return nil, errors.Join(errs...)
}

// The groups every server knows.
const (
	SystemMasters         = "system:masters"
	SystemAuthenticated   = "system:authenticated"
	SystemUnauthenticated = "system:unauthenticated"
	Anonymous             = "system:anonymous"
)

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
