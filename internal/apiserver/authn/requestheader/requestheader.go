package requestheader

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/clientcert"
)

// Headers are the names of the headers in which a front proxy describes the user.
type Headers struct {
	User        []string // the first with a value is used
	UID         []string // the first with a value is used
	Group       []string // all values are used
	ExtraPrefix []string // the rest of the header's name is the key of the extra; all values are used
}

// Standard are the headers that aggregated API servers expect.
var Standard = Headers{User: []string{"X-Remote-User"}, UID: []string{"X-Remote-Uid"}, Group: []string{"X-Remote-Group"}, ExtraPrefix: []string{"X-Remote-Extra-"}}

// Validate checks the headers and the allowed names of front proxies as given by flags.
func (h Headers) Validate(allowed []string, log *slog.Logger) error {
	var errs []error
	for _, flag := range []struct {
		name, standard, kind string
		values               []string
	}{
		{"requestheader-username-headers", "X-Remote-User", "header", h.User},
		{"requestheader-group-headers", "X-Remote-Group", "header", h.Group},
		{"requestheader-extra-headers-prefix", "X-Remote-Extra-", "header prefix", h.ExtraPrefix},
		{"requestheader-allowed-names", "", "", allowed},
		{"requestheader-uid-headers", "X-Remote-Uid", "header", h.UID},
	} {
		if slices.ContainsFunc(flag.values, func(v string) bool { return strings.TrimSpace(v) == "" }) {
			errs = append(errs, fmt.Errorf("empty value in %q", flag.name))
		}
		has := func(v string) bool { return strings.EqualFold(v, flag.standard) }
		if flag.standard == "" || len(flag.values) == 0 || slices.ContainsFunc(flag.values, has) {
			continue
		}
		problem := fmt.Sprintf("--%s is set without specifying the standard %s %s - API aggregation will not work", flag.name, flag.standard, flag.kind)
		if flag.name == "requestheader-uid-headers" {
			errs = append(errs, errors.New(problem))
		} else {
			log.Warn(problem)
		}
	}
	return errors.Join(errs...)
}

// Clear removes the headers, so that no later handler trusts them.
func (h Headers) Clear(header http.Header) {
	for _, names := range [][]string{h.User, h.UID, h.Group} {
		for _, name := range names {
			header.Del(name)
		}
	}
	for _, prefix := range h.ExtraPrefix {
		for name := range header {
			if _, ok := cutPrefix(name, prefix); ok {
				delete(header, name)
			}
		}
	}
}

// Authenticator authenticates the users that trusted front proxies name.
type Authenticator struct {
	headers  Headers
	allowed  []string
	verifier *clientcert.Verifier
}

// New returns an authenticator that trusts clients with a certificate issued by the CAs for one of the allowed common names; no allowed
// names means any.
func New(headers Headers, cas clientcert.CAs, allowed []string, now clock.PassiveClock) *Authenticator {
	return &Authenticator{headers: headers, allowed: allowed, verifier: clientcert.NewVerifier(cas, now)}
}

// Authenticate returns the user that the front proxy names, and removes the headers.
func (a *Authenticator) Authenticate(r *http.Request) (*authn.User, error) {
	verified, err := a.verifier.Verify(r)
	if verified == nil || err != nil {
		return nil, err
	}
	if len(a.allowed) > 0 && !slices.Contains(a.allowed, verified.CommonName) {
		return nil, fmt.Errorf("x509: subject with cn=%s is not in the allowed list", verified.CommonName)
	}
	name := first(r.Header, a.headers.User)
	if name == "" {
		return nil, nil
	}
	user := &authn.User{Username: name, UID: first(r.Header, a.headers.UID), Groups: all(r.Header, a.headers.Group), Extra: extra(r.Header, a.headers.ExtraPrefix)}
	a.headers.Clear(r.Header)
	return user, nil
}

func first(h http.Header, names []string) string {
	for _, name := range names {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}

func all(h http.Header, names []string) []string {
	var found []string
	for _, name := range names {
		for _, v := range h.Values(name) {
			if v != "" {
				found = append(found, v)
			}
		}
	}
	return found
}

func extra(h http.Header, prefixes []string) map[string]authenticationv1.ExtraValue {
	found := map[string]authenticationv1.ExtraValue{}
	for _, prefix := range prefixes { // values are ordered by prefix
		for name, values := range h {
			encoded, ok := cutPrefix(name, prefix)
			if !ok {
				continue
			}
			key := strings.ToLower(encoded)
			if decoded, err := url.PathUnescape(key); err == nil {
				key = decoded
			}
			found[key] = append(found[key], values...)
		}
	}
	return found
}

func cutPrefix(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return "", false
	}
	return s[len(prefix):], true
}
