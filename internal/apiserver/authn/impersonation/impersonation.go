// Package impersonation lets a user be served as another, named in the headers Impersonate-User, -Group, -Uid and -Extra-*, if that is
// allowed. There are two kinds. Unconstrained impersonation asks whether the user may "impersonate" the other: all or nothing. Constrained
// impersonation (KEP-5284) asks whether the user may impersonate the other in some mode, and whether in that mode the user may do what the
// request is about ("impersonate-on:MODE:VERB").
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
	// rememberedModes is of how many users it is remembered in which mode they impersonated last.
	rememberedModes = 1024
	// maxValues is how many groups and extra values may be asked for: each is a question to the authorizers.
	maxValues = 4096
)

// Impersonator answers requests to be served as somebody else.
type Impersonator struct {
	authorizer authz.Authorizer
	last       *lru.Cache // the index of the mode by the user's name
}

// New returns an impersonator that asks an authorizer.
func New(authorizer authz.Authorizer) *Impersonator {
	return &Impersonator{authorizer: authorizer, last: lru.New(rememberedModes)}
}

// Impersonate returns as whom a request is to be served, and the verb that allowed it if it was constrained. It returns nil if the headers
// ask for nobody else. The attributes are those of the request, with the user who sent it. Errors are API errors. The headers are removed.
func (i *Impersonator) Impersonate(ctx context.Context, header http.Header, a *authz.Attributes) (user *authn.User, constraint string, err error) {
	wanted, err := fromHeaders(header)
	if wanted == nil || err != nil {
		return nil, "", err
	}
	// The mode that worked last is asked first: it likely works again, and if not its error is the one the user understands.
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

// fromHeaders reads whom the request asks for and removes the headers: nobody further on shall behave differently because of them. It
// returns nil if the request asks for nobody.
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

// describe writes a user as upstream does in this error.
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
