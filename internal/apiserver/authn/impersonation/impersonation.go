package impersonation

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/lru"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
)

const (
	// cachedModes is the number of users whose last successful mode is cached.
	cachedModes = 1024
	// maxValues is the maximum number of groups and extra values of a request: each costs an authorization.
	maxValues = 4096
)

// Impersonator authorizes impersonation.
type Impersonator struct {
	authorizer authz.Authorizer
	last       *lru.Cache // index into modes of the last successful mode, by username
}

// New returns an impersonator that asks the authorizer.
func New(authorizer authz.Authorizer) *Impersonator {
	return &Impersonator{authorizer: authorizer, last: lru.New(cachedModes)}
}

// Impersonate returns the impersonated user, nil if the headers ask for none, and the verb that allowed it if it was constrained. a holds the
// attributes of the request, with the user who sent it. Errors are API errors. The impersonation headers are removed.
func (i *Impersonator) Impersonate(ctx context.Context, header http.Header, a *authz.Attributes) (user *authn.User, constraint string, err error) {
	wanted, err := fromHeaders(header)
	if wanted == nil || err != nil {
		return nil, "", err
	}
	// The mode that succeeded last is tried first: it likely succeeds again, and if not, its error is the one the user understands.
	last := -1
	if found, ok := i.last.Get(a.User.Username); ok {
		last = found.(int)
		if user, err = i.try(ctx, last, wanted, a); user != nil {
			return user, modes[last].constraint(), nil
		}
	}
	for n, mode := range modes {
		if n == last {
			continue
		}
		user, problem := i.try(ctx, n, wanted, a)
		if user != nil {
			i.last.Add(a.User.Username, n)
			return user, mode.constraint(), nil
		}
		if err == nil {
			err = problem
		}
	}
	return nil, "", err
}

func (i *Impersonator) try(ctx context.Context, n int, wanted *authn.User, a *authz.Attributes) (*authn.User, error) {
	if !modes[n].applies(wanted, a.User) {
		return nil, nil
	}
	return (&attempt{ctx, i.authorizer, modes[n], wanted, a}).run()
}

// fromHeaders returns the user that the headers ask for, nil if none, and removes the headers: no later handler must behave differently
// because of them.
func fromHeaders(header http.Header) (*authn.User, error) {
	const prefix = authenticationv1.ImpersonateUserExtraHeaderPrefix
	wanted := &authn.User{Username: header.Get(authenticationv1.ImpersonateUserHeader), UID: header.Get(authenticationv1.ImpersonateUIDHeader),
		Groups: header[authenticationv1.ImpersonateGroupHeader]}
	values, hasExtra := len(wanted.Groups), false
	for name, v := range header {
		key, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		hasExtra = true
		if len(v) == 0 {
			continue
		}
		key = strings.ToLower(key)
		if decoded, err := url.PathUnescape(key); err == nil {
			key = decoded
		}
		if wanted.Extra == nil {
			wanted.Extra = map[string]authenticationv1.ExtraValue{}
		}
		wanted.Extra[key] = append(wanted.Extra[key], v...)
		values += len(v)
	}
	if wanted.Username == "" {
		if wanted.UID != "" || len(wanted.Groups) > 0 || hasExtra {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("requested %s without impersonating a user name", describe(wanted)))
		}
		return nil, nil
	}
	if values > maxValues {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("requested %d groups and extra values, at most %d can be impersonated", values, maxValues))
	}
	for _, name := range []string{authenticationv1.ImpersonateUserHeader, authenticationv1.ImpersonateUIDHeader, authenticationv1.ImpersonateGroupHeader} {
		header.Del(name)
	}
	for name := range header {
		if strings.HasPrefix(name, prefix) {
			delete(header, name)
		}
	}
	return wanted, nil
}

// describe formats a user as upstream does in this error.
func describe(u *authn.User) string {
	var extra map[string][]string
	for key, values := range u.Extra {
		if extra == nil {
			extra = map[string][]string{}
		}
		extra[key] = values
	}
	return fmt.Sprintf("&user.DefaultInfo{Name:%q, UID:%q, Groups:%#v, Extra:%#v}", u.Username, u.UID, u.Groups, extra)
}
