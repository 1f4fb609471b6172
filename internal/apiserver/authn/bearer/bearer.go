package bearer

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"skiff/internal/apiserver/authn"
)

const (
	// MaxToken is the maximum length of a token. Longer tokens are refused before any work is spent on them.
	MaxToken = 64 << 10

	subprotocol       = "base64url.bearer.authorization.k8s.io."
	extraSpaceWarning = "the provided Authorization header contains extra space before the bearer token, and is ignored"
)

var (
	errInvalid         = errors.New("invalid bearer token")
	errTooLong         = errors.New("bearer token is too long")
	errMultipleTokens  = errors.New("multiple base64.bearer.authorization tokens specified")
	errEncoding        = errors.New("invalid base64.bearer.authorization token encoding")
	errNotUTF8         = errors.New("invalid base64.bearer.authorization token")
	errNoOtherProtocol = errors.New("missing additional subprotocol")
)

// Authenticator authenticates requests by their bearer tokens.
type Authenticator struct {
	tokens authn.TokenAuthenticator
	notes  authn.Notes
}

// New returns an authenticator of requests whose token one of tokens authenticates.
func New(tokens authn.TokenAuthenticator, notes authn.Notes) *Authenticator {
	return &Authenticator{tokens, notes}
}

// Authenticate reads the token from either place. A token that was authenticated is removed from the request, so that no later handler sees it.
func (a *Authenticator) Authenticate(r *http.Request) (*authn.User, error) {
	var errs []error
	if header := r.Header.Get("Authorization"); header != "" {
		user, _, err := a.authenticate(r.Context(), header, nil)
		if user != nil {
			r.Header.Del("Authorization")
			return user, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if isWebSocket(r) {
		user, err := a.webSocket(r)
		if user != nil {
			return user, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil, nil
	}
	return nil, utilerrors.NewAggregate(errs)
}

// AuthenticateToken returns for the token what Authenticate would return for a request with it, also in its treatment of white space.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string, audiences []string) (*authn.User, []string, error) {
	return a.authenticate(ctx, "Bearer "+token, audiences)
}

func (a *Authenticator) authenticate(ctx context.Context, header string, audiences []string) (*authn.User, []string, error) {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(header), " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return nil, nil, nil
	}
	token, _, more := strings.Cut(rest, " ")
	if token == "" {
		if more {
			a.notes.Warn(ctx, extraSpaceWarning)
		}
		return nil, nil, nil
	}
	if len(token) > MaxToken {
		return nil, nil, errTooLong
	}
	return a.authenticateToken(ctx, token, audiences)
}

// authenticateToken puts "invalid bearer token" before every error, as upstream's servers do, since they try the token of their loopback client first.
func (a *Authenticator) authenticateToken(ctx context.Context, token string, audiences []string) (*authn.User, []string, error) {
	user, good, err := a.tokens.AuthenticateToken(ctx, token, audiences)
	if err != nil {
		return nil, nil, utilerrors.NewAggregate([]error{errInvalid, err})
	}
	if user == nil {
		return nil, nil, errInvalid
	}
	return user, good, nil
}

func (a *Authenticator) webSocket(r *http.Request) (*authn.User, error) {
	token, others, err := fromProtocols(r.Header["Sec-Websocket-Protocol"])
	if token == "" || err != nil {
		return nil, err
	}
	user, _, err := a.authenticateToken(r.Context(), token, nil)
	if user != nil {
		r.Header.Set("Sec-Websocket-Protocol", strings.Join(others, ","))
	}
	return user, err
}

// fromProtocols returns the token among the subprotocols, and the other subprotocols. There must be another one: the server has to answer
// with a subprotocol, which must not be the token.
func fromProtocols(headers []string) (token string, others []string, err error) {
	found := false
	for _, header := range headers {
		for protocol := range strings.SplitSeq(header, ",") {
			protocol = strings.TrimSpace(protocol)
			encoded, ok := strings.CutPrefix(protocol, subprotocol)
			if !ok {
				others = append(others, protocol)
				continue
			}
			if found {
				return "", nil, errMultipleTokens
			}
			found = true
			if len(encoded) > base64.RawURLEncoding.EncodedLen(MaxToken) {
				return "", nil, errTooLong
			}
			decoded, err := base64.RawURLEncoding.DecodeString(encoded)
			if err != nil {
				return "", nil, errEncoding
			}
			if !utf8.Valid(decoded) {
				return "", nil, errNotUTF8
			}
			token = string(decoded)
		}
	}
	if token != "" && len(others) == 0 {
		return "", nil, errNoOtherProtocol
	}
	return token, others, nil
}

func isWebSocket(r *http.Request) bool {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return false
	}
	for _, connection := range r.Header["Connection"] {
		if strings.Contains(strings.ToLower(connection), "upgrade") {
			return true
		}
	}
	return false
}
