package bearer_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/bearer"
)

// known authenticates one token, and refuses tokens that begin with "bad".
type known string

func (k known) AuthenticateToken(_ context.Context, token string, _ []string) (*authn.User, []string, error) {
	if strings.HasPrefix(token, "bad") {
		return nil, nil, errors.New("a bad one")
	}
	if token != string(k) {
		return nil, nil, nil
	}
	return &authn.User{Username: "anna"}, []string{"api"}, nil
}

type warnings []string

func (w *warnings) Warn(_ context.Context, text string)    { *w = append(*w, text) }
func (*warnings) Annotate(context.Context, string, string) {}

func TestTokenInHeader(t *testing.T) {
	for name, c := range map[string]struct {
		header  string
		known   bool
		err     string
		warning bool
	}{
		"a token":                    {header: "Bearer good", known: true},
		"another case":               {header: "bEARER good", known: true},
		"white space around":         {header: "  Bearer good \t", known: true},
		"more after it":              {header: "Bearer good and more", known: true},
		"unknown":                    {header: "Bearer other", err: "invalid bearer token"},
		"refused":                    {header: "Bearer bad", err: "[invalid bearer token, a bad one]"},
		"another scheme":             {header: "Basic good"},
		"no scheme":                  {header: "good"},
		"no token":                   {header: "Bearer "},
		"two spaces":                 {header: "Bearer  good", warning: true},
		"too long":                   {header: "Bearer " + strings.Repeat("x", bearer.MaxToken+1), err: "bearer token is too long"},
		"long, but of no known kind": {header: "Basic " + strings.Repeat("x", bearer.MaxToken+1)},
	} {
		var said warnings
		r := &http.Request{Header: http.Header{"Authorization": {c.header}}}
		user, err := bearer.New(known("good"), &said).Authenticate(r)
		if (user != nil) != c.known || err == nil && c.err != "" || err != nil && err.Error() != c.err {
			t.Errorf("%s: got %v, %v", name, user, err)
		}
		if _, left := r.Header["Authorization"]; left == c.known {
			t.Errorf("%s: the header is left: %v", name, left)
		}
		if (len(said) == 1) != c.warning {
			t.Errorf("%s: warned %q", name, said)
		}
	}
}

func TestTokenInWebSocketProtocols(t *testing.T) {
	encoded := func(token string) string {
		return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
	}
	for name, c := range map[string]struct {
		protocols []string
		header    string
		plain     bool // no WebSocket
		known     bool
		left, err string
	}{
		"with another":              {protocols: []string{"v4.channel.k8s.io, " + encoded("good")}, known: true, left: "v4.channel.k8s.io"},
		"in two headers":            {protocols: []string{encoded("good"), "v4.channel.k8s.io,v5.channel.k8s.io"}, known: true, left: "v4.channel.k8s.io,v5.channel.k8s.io"},
		"beside a bad header":       {protocols: []string{"v4.channel.k8s.io, " + encoded("good")}, header: "Bearer bad", known: true, left: "v4.channel.k8s.io"},
		"both bad":                  {protocols: []string{"v4.channel.k8s.io, " + encoded("other")}, header: "Bearer bad", err: "[invalid bearer token, a bad one]"},
		"none":                      {protocols: []string{"v4.channel.k8s.io"}},
		"alone":                     {protocols: []string{encoded("good")}, err: "missing additional subprotocol"},
		"two":                       {protocols: []string{encoded("good"), encoded("good"), "v4.channel.k8s.io"}, err: "multiple base64.bearer.authorization tokens specified"},
		"unknown":                   {protocols: []string{encoded("other"), "v4.channel.k8s.io"}, err: "invalid bearer token"},
		"not base64":                {protocols: []string{encoded("good") + "=", "v4.channel.k8s.io"}, err: "invalid base64.bearer.authorization token encoding"},
		"not text":                  {protocols: []string{encoded("\xff"), "v4.channel.k8s.io"}, err: "invalid base64.bearer.authorization token"},
		"too long":                  {protocols: []string{encoded(strings.Repeat("x", bearer.MaxToken+1)), "v4.channel.k8s.io"}, err: "bearer token is too long"},
		"in a request of any other": {protocols: []string{encoded("good"), "v4.channel.k8s.io"}, plain: true},
	} {
		r := &http.Request{Header: http.Header{"Sec-Websocket-Protocol": c.protocols, "Upgrade": {"WebSocket"}, "Connection": {"keep-alive, Upgrade"}}}
		if c.plain {
			r.Header.Del("Upgrade")
		}
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		user, err := bearer.New(known("good"), authn.NoNotes{}).Authenticate(r)
		if (user != nil) != c.known || err == nil && c.err != "" || err != nil && err.Error() != c.err {
			t.Errorf("%s: got %v, %v", name, user, err)
		}
		if got := strings.Join(r.Header["Sec-Websocket-Protocol"], ";"); c.known && got != c.left {
			t.Errorf("%s: protocols left: %s", name, got)
		}
	}
}

func TestReviewedTokenIsReadAsInAHeader(t *testing.T) {
	a := bearer.New(known("good"), authn.NoNotes{})
	for token, want := range map[string]bool{"good": true, "good\n": true, " good": false, "other": false} {
		if user, _, _ := a.AuthenticateToken(context.Background(), token, nil); (user != nil) != want {
			t.Errorf("%q: got %v", token, user)
		}
	}
}
