package authn_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/authntest"
	"skiff/internal/apiserver/authn/bearer"
	"skiff/internal/apiserver/authn/configfile"
	"skiff/internal/apiserver/authn/oidc"
)

// claimsOf are the claims of a good token, changed by changes.
func claimsOf(changes ...func(map[string]any)) map[string]any {
	c := map[string]any{"sub": "anna", "aud": []string{"other", "skiff"}, "iat": start.Unix(), "exp": start.Add(time.Hour).Unix(), "jti": "id-7",
		"groups": []string{"admins", "people"}, "staff": map[string]any{"e.mail": "anna@shop.example", "number": "7"}}
	for _, change := range changes {
		change(c)
	}
	return c
}

func claim(name string, value any) func(map[string]any) {
	return func(c map[string]any) { c[name] = value }
}

func without(name string) func(map[string]any) { return func(c map[string]any) { delete(c, name) } }

const byClaims = `    audiences: [skiff]
  claimMappings:
    username: {claim: sub, prefix: "oidc:"}
    groups: {claim: groups, prefix: "oidc:"}
`

const byExpressions = `    audiences: [skiff, vault]
    audienceMatchPolicy: MatchAny
  claimValidationRules:
  - expression: "has(claims.staff)"
    message: only staff
  - {claim: jti, requiredValue: id-7}
  claimMappings:
    username: {expression: "claims.staff.e__dot__mail"}
    groups: {expression: "dyn(claims.groups).map(g, 'staff:' + g)"}
    uid: {expression: "claims.staff.number"}
    extra:
    - {key: shop.example/subject, valueExpression: claims.sub}
  userValidationRules:
  - expression: "!user.username.startsWith('system:')"
    message: reserved
`

// issuerSubject returns a subject with the issuer p, and attacks that are the same for each configuration.
func issuerSubject(t *testing.T, clock *clocktesting.FakePassiveClock, p *authntest.Provider, lines string, token string, user authn.User, more map[authntest.Hazard][]authntest.Attack) *authntest.Subject {
	path := filepath.Join(t.TempDir(), "authentication.yaml")
	configure := func(text string) []byte {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return []byte(text)
	}
	text := configure(authntest.Configuration(p.Issuer(lines)))
	config, err := configfile.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := configfile.Validate(config, nil).ToAggregate(); err != nil {
		t.Fatal(err)
	}
	file, err := oidc.NewFile(t.Context(), path, text, config, oidc.Options{Algorithms: oidc.Algorithms(), Clock: clock, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	file.Reach()
	parts := strings.Split(token, ".")
	join := func(header, payload, signature string) string { return header + "." + payload + "." + signature }
	encode := base64.RawURLEncoding.EncodeToString
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	other := authntest.NewProvider(t)
	other.Rotate("RS256") // to a key that p does not have
	impostor := other.Key()
	impostor.KeyID = p.Key().KeyID
	unknown := impostor
	unknown.KeyID = "key-0"
	key := p.Key()
	public, err := json.Marshal(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	secret := jose.JSONWebKey{Key: public, KeyID: p.Key().KeyID, Algorithm: "HS256"}
	const invalid, badSignature = "invalid bearer token", "oidc: verify token: failed to verify signature: failed to verify id token signature"
	again := func(key jose.JSONWebKey) string { return p.SignWith(key, decode(t, payload)) }
	changed := func(changes ...func(map[string]any)) string {
		c := decode(t, payload)
		for _, change := range changes {
			change(c)
		}
		return p.Sign(c)
	}
	s := &authntest.Subject{
		Authenticator: bearer.New(authn.ForServer(serverAudiences, file.Authenticate), authn.NoNotes{}),
		Good:          func() *http.Request { return authntest.WithToken(token) }, User: user, Secrets: []string{token, parts[2]},
		Bad: map[authntest.Hazard][]authntest.Attack{
			authntest.WrongKey: {
				attack("another key of the same ID", again(impostor), badSignature),
				attack("a key that the provider does not have", again(unknown), badSignature),
				attack("the public key as a secret", again(secret), `oidc: id token signed with unsupported algorithm, expected`),
				attack("no signature", join(encode([]byte(`{"alg":"none"}`)), parts[1], ""), "id token signed with unsupported algorithm"),
				attack("another issuer", changed(claim("iss", "https://issuer.example/oidc")), invalid),
			},
			authntest.Expired: {
				{Name: "a second later", Before: func() { clock.SetTime(start.Add(time.Hour + time.Second)) }, Error: "oidc: verify token: oidc: token is expired (Token Expiry: "},
				attack("before it was issued", changed(claim("exp", start.Add(-time.Second).Unix())), "token is expired"),
				attack("no expiration", changed(without("exp")), "token is expired"),
			},
			authntest.NotYetValid: {attack("from tomorrow on", changed(claim("nbf", start.Add(24*time.Hour).Unix())), "before the nbf (not before) time")},
			authntest.WrongAudience: {
				attack("for another", changed(claim("aud", "other")), "oidc: expected audience "),
				attack("for nobody", changed(without("aud")), "oidc: expected audience "),
				{Name: "reviewed for another", Audiences: []string{"other"}, Error: invalid},
			},
			authntest.Tampered: {
				attack("the claims", join(parts[0], encode([]byte(strings.Replace(string(payload), "anna", "root", 1))), parts[2]), badSignature),
				attack("the signature", join(parts[0], parts[1], strings.Repeat("A", len(parts[2]))), badSignature),
				attack("the signature, shorter", join(parts[0], parts[1], parts[2][:8]), badSignature),
				attack("the header", join(encode([]byte(`{"alg":"RS256","kid":"key-1","crit":["x"]}`)), parts[1], parts[2]), badSignature),
				attack("the claims are no JSON", join(parts[0], encode(payload[:len(payload)-1]), parts[2]), invalid),
				attack("the encoding", strings.Replace(token, ".", "..", 1), invalid),
			},
			authntest.Oversized: {
				attack("padded", token+strings.Repeat("A", bearer.MaxToken), "bearer token is too long"),
				attack("dots", token+strings.Repeat(".", 1000), invalid),
			},
			authntest.Empty: {attack("no token", "", ""), attack("empty parts", "..", invalid), attack("empty claims", changed(without("sub"), without("staff")), "oidc: "), {Name: "no header", Request: bare}},
			authntest.Revoked: {{Name: "the issuer is no longer configured", Error: invalid, Before: func() {
				configure(authntest.Configuration(" []\n"))
				file.Check()
			}}},
		},
		Exempt: map[authntest.Hazard]string{},
	}
	for hazard, attacks := range more {
		s.Bad[hazard] = append(s.Bad[hazard], attacks...)
	}
	return s
}

func idToken(t *testing.T) *authntest.Subject {
	p := authntest.NewProvider(t)
	user := authn.User{Username: "oidc:anna", Groups: []string{"oidc:admins", "oidc:people"}, Extra: map[string]authenticationv1.ExtraValue{authn.ExtraCredentialID: {"JTI=id-7"}}}
	return issuerSubject(t, newClock(), p, byClaims, p.Sign(claimsOf()), user, nil)
}

func mappedIDToken(t *testing.T) *authntest.Subject {
	p := authntest.NewProvider(t)
	user := authn.User{Username: "anna@shop.example", UID: "7", Groups: []string{"staff:admins", "staff:people"},
		Extra: map[string]authenticationv1.ExtraValue{authn.ExtraCredentialID: {"JTI=id-7"}, "shop.example/subject": {"anna"}}}
	return issuerSubject(t, newClock(), p, byExpressions, p.Sign(claimsOf()), user, map[authntest.Hazard][]authntest.Attack{
		authntest.Revoked: {
			attack("by a required claim", p.Sign(claimsOf(claim("jti", "id-8"))), "oidc: required claim jti value does not match. Got = id-8, want = id-7"),
			attack("by a rule about users", p.Sign(claimsOf(claim("staff", map[string]any{"e.mail": "system:admin", "number": "7"}))), "validation expression '!user.username.startsWith('system:')' failed: reserved"),
		},
	})
}

// distributedIDToken is of a provider that keeps the groups elsewhere.
func distributedIDToken(t *testing.T) *authntest.Subject {
	p := authntest.NewProvider(t)
	const access = "open-sesame"
	claims := claimsOf(without("groups"), claim("_claim_names", map[string]string{"groups": "directory"}),
		claim("_claim_sources", map[string]any{"directory": map[string]string{"endpoint": p.URL + "/groups", "access_token": access}}))
	answer := p.Sign(claimsOf())
	p.Handle("/groups", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+access {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, answer)
	})
	impostor := authntest.NewProvider(t)
	impostor.Rotate("RS256")
	refuse := func(name, err string, handle http.HandlerFunc) authntest.Attack {
		// The token must not be the one that was good before: that is remembered for a few seconds.
		fresh := p.Sign(claimsOf(without("groups"), claim("nonce", name), claim("_claim_names", claims["_claim_names"]), claim("_claim_sources", claims["_claim_sources"])))
		return authntest.Attack{Name: "groups: " + name, Before: func() { p.Handle("/groups", handle) }, Error: err, Request: func() *http.Request { return authntest.WithToken(fresh) }}
	}
	say := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	user := authn.User{Username: "oidc:anna", Groups: []string{"oidc:admins", "oidc:people"}, Extra: map[string]authenticationv1.ExtraValue{authn.ExtraCredentialID: {"JTI=id-7"}}}
	const prefix = "oidc: could not expand distributed claims: "
	s := issuerSubject(t, newClock(), p, byClaims, p.Sign(claims), user, map[authntest.Hazard][]authntest.Attack{
		authntest.WrongKey:      {refuse("signed by another", prefix+"verify distributed claim token: ", say(p.SignWith(impostor.Key(), claimsOf())))},
		authntest.WrongAudience: {refuse("for another", prefix+"verify distributed claim token: oidc: expected audience", say(p.Sign(claimsOf(claim("aud", "other")))))},
		authntest.Expired:       {refuse("expired", prefix+"verify distributed claim token: oidc: token is expired", say(p.Sign(claimsOf(claim("exp", start.Add(-time.Hour).Unix())))))},
		authntest.Oversized:     {refuse("too many", prefix+`while getting distributed claim "groups": could not decode distributed claim response`, say(strings.Repeat("A", bearer.MaxToken+1)))},
		authntest.Empty: {
			refuse("nothing", prefix+"getting untrusted issuer", say("")),
			refuse("none", prefix+"jwt returned by distributed claim endpoint", say(p.Sign(claimsOf(without("groups"))))),
		},
		authntest.Revoked: {refuse("refused", prefix+`while getting distributed claim "groups": error while getting distributed claim JWT: 403 Forbidden`, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusForbidden) })},
	})
	s.Secrets = append(s.Secrets, access)
	return s
}
