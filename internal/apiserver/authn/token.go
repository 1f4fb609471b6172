package authn

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
)

var errToken = errors.New("invalid bearer token")

// Token recognizes one bearer token.
func Token(token string, user *User) Authenticator {
	return Func(func(r *http.Request) (*User, error) {
		sent, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			return nil, nil
		}
		if subtle.ConstantTimeCompare([]byte(strings.TrimSpace(sent)), []byte(token)) != 1 {
			return nil, errToken
		}
		return user, nil
	})
}

// Admin is the cluster's administrator.
func Admin() *User {
	return &User{Username: "kubernetes-admin", Groups: []string{SystemMasters, SystemAuthenticated}}
}
