package serviceaccount

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	sigsjson "sigs.k8s.io/json"

	"skiff/internal/apiserver/authn"
)

// LegacyIssuer issues the tokens that lie in Secrets.
const LegacyIssuer = "kubernetes/serviceaccount"

// leeway is by how much clocks may differ: a token is good that much before and after its time, and after the deletion of what it names.
const leeway = time.Minute

// claims are what a token says; those of legacy tokens have long names. The order is that of the names, as upstream writes them.
type claims struct {
	Audience        audience `json:"aud,omitempty"`
	Expiry          *seconds `json:"exp,omitempty"`
	IssuedAt        *seconds `json:"iat,omitempty"`
	Issuer          string   `json:"iss,omitempty"`
	ID              string   `json:"jti,omitempty"`
	Kubernetes      *bound   `json:"kubernetes.io,omitempty"`
	LegacyNamespace string   `json:"kubernetes.io/serviceaccount/namespace,omitempty"`
	LegacySecret    string   `json:"kubernetes.io/serviceaccount/secret.name,omitempty"`
	LegacyName      string   `json:"kubernetes.io/serviceaccount/service-account.name,omitempty"`
	LegacyUID       string   `json:"kubernetes.io/serviceaccount/service-account.uid,omitempty"`
	NotBefore       *seconds `json:"nbf,omitempty"`
	Subject         string   `json:"sub,omitempty"`
}

// bound is what a token's life is bound to: the account, and more.
type bound struct {
	MutatingWebhook   *ref     `json:"mutatingwebhookconfiguration,omitempty"`
	Namespace         string   `json:"namespace,omitempty"`
	Node              *ref     `json:"node,omitempty"`
	Pod               *ref     `json:"pod,omitempty"`
	Secret            *ref     `json:"secret,omitempty"`
	ServiceAccount    ref      `json:"serviceaccount"`
	ValidatingWebhook *ref     `json:"validatingwebhookconfiguration,omitempty"`
	WarnAfter         *seconds `json:"warnafter,omitempty"`
}

type ref struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// seconds is a time in seconds since 1970.
type seconds int64

func secondsOf(t time.Time) *seconds {
	s := seconds(t.Unix())
	return &s
}

func (s seconds) time() time.Time { return time.Unix(int64(s), 0) }

// UnmarshalJSON reads a number, which may have a fraction.
func (s *seconds) UnmarshalJSON(data []byte) error {
	f, err := strconv.ParseFloat(string(data), 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) >= 1<<53 { // beyond, it is no time that a clock could show
		return errors.New("expected number value to unmarshal NumericDate")
	}
	*s = seconds(f)
	return nil
}

// audience is for whom a token is meant.
type audience []string

// UnmarshalJSON reads one name or a list of names.
func (a *audience) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil && string(data) != "null" {
		*a = audience{one}
		return nil
	}
	var many []string
	if err := json.Unmarshal(data, &many); err != nil || many == nil {
		return errors.New("expected string or array value to unmarshal to Audience")
	}
	*a = many
	return nil
}

func parseClaims(payload []byte) (*claims, error) {
	c := &claims{}
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(payload, c); err != nil {
		return nil, errors.New("claims cannot be read")
	}
	return c, nil
}

func (c *claims) legacy() bool { return c.Issuer == LegacyIssuer && c.Kubernetes == nil }

// atTime says whether a token is good now, as far as its claims know.
func (c *claims) atTime(now time.Time) error {
	switch {
	case c.NotBefore != nil && now.Add(leeway).Before(c.NotBefore.time()):
		return errors.New("service account token is not valid yet")
	case c.Expiry != nil && now.Add(-leeway).After(c.Expiry.time()):
		return errors.New("service account token has expired")
	case c.IssuedAt != nil && now.Add(leeway).Before(c.IssuedAt.time()):
		return errors.New("service account token is issued in the future")
	}
	return nil
}

// user is whose token it is, or nil if the claims do not say.
func (c *claims) user() *authn.User {
	if c.legacy() {
		return &authn.User{Username: authn.ServiceAccountUser(c.LegacyNamespace, c.LegacyName), UID: c.LegacyUID, Groups: authn.ServiceAccountGroups(c.LegacyNamespace)}
	}
	k := c.Kubernetes
	if k == nil {
		return nil
	}
	u := &authn.User{Username: authn.ServiceAccountUser(k.Namespace, k.ServiceAccount.Name), UID: k.ServiceAccount.UID, Groups: authn.ServiceAccountGroups(k.Namespace)}
	extra := map[string]authenticationv1.ExtraValue{}
	if p := k.Pod; p != nil && p.Name != "" && p.UID != "" {
		extra[authn.ExtraPodName], extra[authn.ExtraPodUID] = authenticationv1.ExtraValue{p.Name}, authenticationv1.ExtraValue{p.UID}
	}
	if n := k.Node; n != nil && n.Name != "" {
		extra[authn.ExtraNodeName] = authenticationv1.ExtraValue{n.Name}
		if n.UID != "" {
			extra[authn.ExtraNodeUID] = authenticationv1.ExtraValue{n.UID}
		}
	}
	if c.ID != "" {
		extra[authn.ExtraCredentialID] = authenticationv1.ExtraValue{credentialID(c.ID)}
	}
	if len(extra) > 0 {
		u.Extra = extra
	}
	return u
}

func credentialID(jti string) string { return "JTI=" + jti }
