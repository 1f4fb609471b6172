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

// LegacyIssuer is the issuer of the tokens that are stored in Secrets.
const LegacyIssuer = "kubernetes/serviceaccount"

// leeway allows for clock skew: a token is valid that long before and after its time, and after the deletion of an object it names.
const leeway = time.Minute

// claims are the claims of a token; those of legacy tokens have long names. They are sorted by name, as upstream writes them.
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

// bound names the objects a token is bound to: the service account, and more.
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

// seconds is a time in seconds since 1970, a NumericDate.
type seconds int64

func secondsOf(t time.Time) *seconds {
	s := seconds(t.Unix())
	return &s
}

func (s seconds) time() time.Time { return time.Unix(int64(s), 0) }

// UnmarshalJSON decodes a number, which may have a fraction.
func (s *seconds) UnmarshalJSON(data []byte) error {
	f, err := strconv.ParseFloat(string(data), 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) >= 1<<53 { // larger numbers are not exact in a float64, and no real time
		return errors.New("expected number value to unmarshal NumericDate")
	}
	*s = seconds(f)
	return nil
}

// audience is the aud claim: the intended recipients of a token.
type audience []string

// UnmarshalJSON decodes one name or a list of names.
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

// atTime returns an error unless now is within the token's validity.
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

// user returns the token's user, nil if the claims name none.
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
