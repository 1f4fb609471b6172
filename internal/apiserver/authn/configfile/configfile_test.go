package configfile_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skiff/internal/apiserver/authn/configfile"
)

const head = "kind: AuthenticationConfiguration\napiVersion: apiserver.config.k8s.io/v1\n"

// TestParse: what is refused, and with which words; all of them are upstream's.
func TestParse(t *testing.T) {
	issuer := "jwt: [{issuer: {url: 'https://a.example', audiences: [a]}, claimMappings: {username: {claim: sub, prefix: ''}}}]\n"
	for _, c := range []struct{ name, text, want string }{
		{"nothing in it", head, ""},
		{"an issuer", head + issuer, ""},
		{"v1beta1", strings.Replace(head, "/v1", "/v1beta1", 1) + issuer, ""},
		{"v1alpha1", strings.Replace(head, "/v1", "/v1alpha1", 1) + issuer, ""},
		{"JSON", `{"kind":"AuthenticationConfiguration","apiVersion":"apiserver.config.k8s.io/v1","anonymous":{"enabled":true,"conditions":[{"path":"/livez"}]}}`, ""},
		{"empty", "", "empty config data"},
		{"another version", strings.Replace(head, "/v1", "/v2", 1), `no kind "AuthenticationConfiguration" is registered for version "apiserver.config.k8s.io/v2"`},
		{"no kind", "jwt: []", "Object 'Kind' is missing"},
		{"an unknown field", head + "jwts: []", `strict decoding error: unknown field "jwts"`},
		{"a field twice", head + issuer + issuer, `strict decoding error: yaml: unmarshal errors:`},
		{"another kind", "kind: AdmissionConfiguration\napiVersion: apiserver.config.k8s.io/v1\n", "expected AuthenticationConfiguration, got *apiserver.AdmissionConfiguration"},
		{"no URL", head + strings.Replace(issuer, "'https://a.example'", "''", 1), "jwt[0].issuer.url: Required value"},
		{"no TLS", head + strings.Replace(issuer, "https:", "http:", 1), `jwt[0].issuer.url: Invalid value: "http://a.example": URL scheme must be https`},
		{"this cluster's issuer", head + strings.Replace(issuer, "a.example", "accounts.example", 1), "URL must not overlap with disallowed issuers: [https://accounts.example]"},
		{"no audience", head + strings.Replace(issuer, "[a]", "[]", 1), "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required"},
		{"audiences without a policy", head + strings.Replace(issuer, "[a]", "[a, b]", 1), "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for multiple audiences"},
		{"no authority", head + strings.Replace(issuer, "audiences", "certificateAuthority: x, audiences", 1), "jwt[0].issuer.certificateAuthority: Invalid value: \"<omitted>\""},
		{"no way out", head + strings.Replace(issuer, "audiences", "egressSelectorType: etcd, audiences", 1), "egress selector must be either controlplane or cluster"},
		{"no prefix", head + strings.Replace(issuer, ", prefix: ''", "", 1), "jwt[0].claimMappings.username.prefix: Required value"},
		{"no expression", head + strings.Replace(issuer, "claim: sub, prefix: ''", "expression: 'claims.'", 1), "jwt[0].claimMappings.username.expression: Invalid value: \"claims.\": compilation failed"},
		{"an email that need not be verified", head + strings.Replace(issuer, "claim: sub, prefix: ''", "expression: claims.email", 1), "claims.email_verified must be used in"},
		{"an issuer twice", head + issuer[:len(issuer)-2] + ", " + issuer[len("jwt: ["):], `jwt[1].issuer.url: Duplicate value: "https://a.example"`},
		{"paths for nobody", head + "anonymous: {enabled: false, conditions: [{path: /livez}]}", "anonymous.conditions: Invalid value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, err := configfile.Parse([]byte(c.text))
			if err == nil {
				err = configfile.Validate(config, []string{"https://accounts.example"}).ToAggregate()
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	for size, want := range map[int]string{0: "", configfile.MaxSize: "", configfile.MaxSize + 1: "is larger than 1048576 bytes"} {
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		data, err := configfile.Read(path)
		if want == "" && (err != nil || len(data) != size) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d bytes: got %d, %v", size, len(data), err)
		}
	}
	if _, err := configfile.Read(path + ".none"); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}

// TestFlags: the issuer that flags describe is the one that a file would.
func TestFlags(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, []byte("PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		flags      configfile.OIDCFlags
	}{
		{"none", "null", configfile.OIDCFlags{UsernameClaim: "sub"}},
		{"an issuer without a client", "null", configfile.OIDCFlags{IssuerURL: "https://a", UsernameClaim: "sub"}},
		{"few", `{"Claim":"sub","Prefix":"https://a#"} {"Claim":"","Prefix":null} [] ""`, configfile.OIDCFlags{IssuerURL: "https://a", ClientID: "c", UsernameClaim: "sub"}},
		{"an email", `{"Claim":"email","Prefix":""} {"Claim":"","Prefix":null} [] ""`, configfile.OIDCFlags{IssuerURL: "https://a", ClientID: "c", UsernameClaim: "email"}},
		{"no prefix", `{"Claim":"sub","Prefix":""} {"Claim":"","Prefix":null} [] ""`, configfile.OIDCFlags{IssuerURL: "https://a", ClientID: "c", UsernameClaim: "sub", UsernamePrefix: "-"}},
		{"all", `{"Claim":"email","Prefix":"u:"} {"Claim":"groups","Prefix":"g:"} ["a=1","b=2"] "PEM"`, configfile.OIDCFlags{IssuerURL: "https://a", ClientID: "c", CAFile: ca,
			UsernameClaim: "email", UsernamePrefix: "u:", GroupsClaim: "groups", GroupsPrefix: "g:", RequiredClaims: map[string]string{"b": "2", "a": "1"}}},
	} {
		jwt, err := c.flags.JWT()
		if err != nil {
			t.Fatal(err)
		}
		got := "null"
		if len(jwt) == 1 {
			rules := []string{}
			for _, r := range jwt[0].ClaimValidationRules {
				rules = append(rules, r.Claim+"="+r.RequiredValue)
			}
			mapping := func(claim string, prefix *string) any {
				return struct {
					Claim  string
					Prefix *string
				}{claim, prefix}
			}
			m := jwt[0].ClaimMappings
			var parts []string
			for _, v := range []any{mapping(m.Username.Claim, m.Username.Prefix), mapping(m.Groups.Claim, m.Groups.Prefix), rules, jwt[0].Issuer.CertificateAuthority} {
				text, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				parts = append(parts, string(text))
			}
			got = strings.Join(parts, " ")
			if jwt[0].Issuer.URL != "https://a" || len(jwt[0].Issuer.Audiences) != 1 || jwt[0].Issuer.Audiences[0] != "c" {
				t.Errorf("%s: got %+v", c.name, jwt[0].Issuer)
			}
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	if _, err := (&configfile.OIDCFlags{IssuerURL: "https://a", ClientID: "c", CAFile: ca + ".none"}).JWT(); err == nil || !strings.Contains(err.Error(), "--oidc-ca-file") {
		t.Errorf("got %v", err)
	}
}

// FuzzParse: no file makes the parser or the validation fail otherwise than with an error.
func FuzzParse(f *testing.F) {
	f.Add(head + "jwt: [{issuer: {url: 'https://a', audiences: [a]}, claimMappings: {username: {expression: claims.sub}}, userValidationRules: [{expression: user.username == ''}]}]")
	f.Add(head + "anonymous: {enabled: true, conditions: [{path: /livez}]}")
	f.Add(head + "jwt: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		config, err := configfile.Parse([]byte(text))
		if err != nil {
			return
		}
		if len(config.JWT) > 4 { // compiling takes time
			return
		}
		_ = configfile.Validate(config, nil)
	})
}
