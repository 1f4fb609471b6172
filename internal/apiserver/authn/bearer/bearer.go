// Package bearer takes the bearer token out of a request, from the Authorization header or from the subprotocols of a WebSocket, and
// asks those who know tokens whose it is. It is the only place that looks for one.
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
	// MaxToken is how long a token may be. Whoever sends a longer one is refused before anything is computed on it.
	MaxToken = 64 << 10

	subprotocol = "base64url.bearer.authorization.k8s.io."
	spaces      = "the provided Authorization header contains extra space before the bearer token, and is ignored"
)

var (
	errInvalid  = errors.New("invalid bearer token")
	errTooLong  = errors.New("bearer token is too long")
	errMany     = errors.New("multiple base64.bearer.authorization tokens specified")
	errEncoding = errors.New("invalid base64.bearer.authorization token encoding")
	errText     = errors.New("invalid base64.bearer.authorization token")
	errAlone    = errors.New("missing additional subprotocol")
)

// Authenticator recognizes requests by their bearer tokens.
type Authenticator struct {
	tokens authn.TokenAuthenticator
	notes  authn.Notes
}

// New returns an authenticator of the requests whose tokens are known.
func New(tokens authn.TokenAuthenticator, notes authn.Notes) *Authenticator {
	return &Authenticator{tokens, notes}
}

// Authenticate looks for a token in both places. A token that was recognized is removed, so that nobody further on sees it.
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

// AuthenticateToken answers for the token what Authenticate would answer for a request with it, down to how it treats white space.
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
			a.notes.Warn(ctx, spaces)
		}
		return nil, nil, nil
	}
	if len(token) > MaxToken {
		return nil, nil, errTooLong
	}
	return a.ask(ctx, token, audiences)
}

// ask says of every token that it is invalid before it says why: upstream's servers do, since they try the token of their own client first.
func (a *Authenticator) ask(ctx context.Context, token string, audiences []string) (*authn.User, []string, error) {
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
	user, _, err := a.ask(r.Context(), token, nil)
	if user != nil {
		r.Header.Set("Sec-Websocket-Protocol", strings.Join(others, ","))
	}
	return user, err
}

// fromProtocols finds the token among the subprotocols, and the others. There must be another: the server has to answer with one, and
// it cannot be the token.
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
				return "", nil, errMany
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
				return "", nil, errText
			}
			token = string(decoded)
		}
	}
	if token != "" && len(others) == 0 {
		return "", nil, errAlone
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
