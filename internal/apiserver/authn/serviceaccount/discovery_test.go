package serviceaccount

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestDiscovery(t *testing.T) {
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	module, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := NewKeys(module.Public(), curve.Public(), module.Public()) // the signing key may also be among the verification keys
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ issuer, uri, address, wantURI, err string }{
		"by address":       {issuerURL, "", "10.0.0.1:6443", "https://10.0.0.1:6443/openid/v1/jwks", ""},
		"by URI":           {issuerURL, "https://keys.example/jwks", "10.0.0.1:6443", "https://keys.example/jwks", ""},
		"no issuer":        {"", "", "a", "", "empty issuer URL"},
		"issuer a word":    {"kubernetes", "", "a", "", "issuer URL must use https scheme, got: kubernetes"},
		"issuer http":      {"http://issuer", "", "a", "", "issuer URL must use https scheme, got: http://issuer"},
		"issuer queried":   {"https://issuer?a=b", "", "a", "", "issuer URL may not include a query, got: https://issuer?a=b"},
		"issuer fragment":  {"https://issuer#a", "", "a", "", "issuer URL may not include a fragment, got: https://issuer#a"},
		"issuer no URL":    {"https://[", "", "a", "", "missing ']' in host"},
		"nowhere":          {issuerURL, "", "", "", "either the JWKS URI or the default external address, or both, must be set"},
		"URI http":         {issuerURL, "http://keys", "", "", "jwksURI requires https scheme, parsed as: http://keys"},
		"address is a URL": {issuerURL, "", "https://a:1", "", "attempted to build jwks_uri from external address https://a:1, but could not construct a valid URL"},
	} {
		d, err := NewDiscovery(c.issuer, c.uri, c.address, keys)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`{"issuer":%q,"jwks_uri":%q,"response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256","RS256"]}`, c.issuer, c.wantURI)
		if string(d.Configuration) != want {
			t.Errorf("%s: got\n%s, want\n%s", name, d.Configuration, want)
		}
		var set struct{ Keys []map[string]string }
		if err := json.Unmarshal(d.Keys, &set); err != nil || len(set.Keys) != 2 || set.Keys[0]["e"] != "AQAB" || set.Keys[0]["kid"] != keys.all[0].ID || set.Keys[1]["crv"] != "P-256" {
			t.Errorf("%s: got %s, %v", name, d.Keys, err)
		}
	}
	if _, err := NewKeys(); err == nil {
		t.Error("a set of no keys")
	}
}
