package oidc

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"skiff/internal/apiserver/authn/configfile"
)

// mapper returns an issuer of tokens with the configuration, which is in YAML below "jwt: [".
func mapper(t testing.TB, jwt string) *issuer {
	t.Helper()
	config, err := configfile.Parse([]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: [{issuer: {url: 'https://a.example', audiences: [skiff]}, " + jwt + "}]"))
	if err != nil {
		t.Fatal(err)
	}
	programs, errs := validation.CompileAndValidateJWTAuthenticator(authenticationcel.NewDefaultCompiler(), config.JWT[0], nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	i := &issuer{config: config.JWT[0], programs: programs, requiredClaims: map[string]string{}}
	for _, rule := range config.JWT[0].ClaimValidationRules {
		if rule.Claim != "" {
			i.requiredClaims[rule.Claim] = rule.RequiredValue
		}
	}
	return i
}

const plain = "claimMappings: {username: {claim: sub, prefix: ''}}"

// TestUsers: what claims make of a user. The texts of errors are upstream's.
func TestUsers(t *testing.T) {
	for _, c := range []struct{ name, jwt, claims, want string }{
		{"a claim", plain, `{"sub":"anna"}`, `{"username":"anna"}`},
		{"an empty claim", plain, `{"sub":""}`, `{}`},
		{"no claim", plain, `{}`, `oidc: parse username claims "sub": claim not present`},
		{"a number", plain, `{"sub":7}`, `oidc: parse username claims "sub": json: cannot unmarshal number into Go value of type string`},
		{"its ID", plain, `{"sub":"anna","jti":"7"}`, `{"username":"anna","extra":{"authentication.kubernetes.io/credential-id":["JTI=7"]}}`},
		{"an ID that is none", plain, `{"sub":"anna","jti":7}`, `{"username":"anna"}`},
		{"an email", "claimMappings: {username: {claim: email, prefix: ''}}", `{"email":"a@b"}`, `{"username":"a@b"}`},
		{"a verified email", "claimMappings: {username: {claim: email, prefix: ''}}", `{"email":"a@b","email_verified":true}`, `{"username":"a@b"}`},
		{"an email that is not verified", "claimMappings: {username: {claim: email, prefix: ''}}", `{"email":"a@b","email_verified":false}`, `oidc: email not verified`},
		{"an email verified by text", "claimMappings: {username: {claim: email, prefix: ''}}", `{"email":"a@b","email_verified":"true"}`, `oidc: parse 'email_verified' claim: json: cannot unmarshal string into Go value of type bool`},
		{"groups", "claimMappings: {username: {claim: sub, prefix: 'o:'}, groups: {claim: g, prefix: 'p:'}}", `{"sub":"anna","g":["a","b"]}`, `{"username":"o:anna","groups":["p:a","p:b"]}`},
		{"one group", "claimMappings: {username: {claim: sub, prefix: ''}, groups: {claim: g, prefix: ''}}", `{"sub":"anna","g":"a"}`, `{"username":"anna","groups":["a"]}`},
		{"no groups", "claimMappings: {username: {claim: sub, prefix: ''}, groups: {claim: g, prefix: ''}}", `{"sub":"anna"}`, `{"username":"anna"}`},
		{"groups that are none", "claimMappings: {username: {claim: sub, prefix: ''}, groups: {claim: g, prefix: ''}}", `{"sub":"anna","g":7}`, `oidc: parse groups claim "g": json: cannot unmarshal number into Go value of type string`},
		{"a UID", "claimMappings: {username: {claim: sub, prefix: ''}, uid: {claim: id}}", `{"sub":"anna","id":"7"}`, `{"username":"anna","uid":"7"}`},
		{"no UID", "claimMappings: {username: {claim: sub, prefix: ''}, uid: {claim: id}}", `{"sub":"anna"}`, `oidc: parse uid claim "id": claim not present`},

		{"by expression", "claimMappings: {username: {expression: claims.sub}}", `{"sub":"anna"}`, `{"username":"anna"}`},
		{"empty by expression", "claimMappings: {username: {expression: claims.sub}}", `{"sub":""}`, `oidc: empty username via CEL expression is not allowed`},
		{"a number by expression", "claimMappings: {username: {expression: claims.sub}}", `{"sub":7}`, `oidc: error evaluating username claim expression: username claim expression must return a string`},
		{"nothing by expression", "claimMappings: {username: {expression: claims.sub}}", `{}`, `oidc: error evaluating username claim expression: expression 'claims.sub' resulted in error: no such key: sub`},
		{"deep", `claimMappings: {username: {expression: "claims.a.b__dot__c[0].d__dash__e"}}`, `{"a":{"b.c":[{"d-e":"anna"}]}}`, `{"username":"anna"}`},
		{"a claim with a dot", `claimMappings: {username: {expression: "claims.a__dot__b"}}`, `{"a.b":"anna"}`, `{"username":"anna"}`},
		{"groups by expression", `claimMappings: {username: {expression: claims.sub}, groups: {expression: "claims.g"}}`, `{"sub":"anna","g":["a","","b"]}`, `{"username":"anna","groups":["a","b"]}`},
		{"groups that are made", `claimMappings: {username: {expression: claims.sub}, groups: {expression: "['x:' + claims.g, '']"}}`, `{"sub":"anna","g":"a"}`, `{"username":"anna","groups":["x:a"]}`},
		{"a group by expression", `claimMappings: {username: {expression: claims.sub}, groups: {expression: "claims.g"}}`, `{"sub":"anna","g":"a"}`, `{"username":"anna","groups":["a"]}`},
		{"null groups", `claimMappings: {username: {expression: claims.sub}, groups: {expression: "claims.g"}}`, `{"sub":"anna","g":null}`, `{"username":"anna"}`},
		{"groups of numbers", `claimMappings: {username: {expression: claims.sub}, groups: {expression: "claims.g"}}`, `{"sub":"anna","g":["a",1]}`, `oidc: error evaluating group claim expression: expression must return a string or a list of strings`},
		{"groups of groups", `claimMappings: {username: {expression: claims.sub}, groups: {expression: "claims.g"}}`, `{"sub":"anna","g":{"a":"b"}}`, `oidc: error evaluating group claim expression: expression must return a string or a list of strings`},
		{"a UID by expression", "claimMappings: {username: {expression: claims.sub}, uid: {expression: claims.id}}", `{"sub":"anna","id":"7"}`, `{"username":"anna","uid":"7"}`},
		{"a UID that is a number", "claimMappings: {username: {expression: claims.sub}, uid: {expression: claims.id}}", `{"sub":"anna","id":7}`, `oidc: error evaluating uid claim expression: uid claim expression must return a string`},
		{"extra", `claimMappings: {username: {expression: claims.sub}, extra: [{key: a.example/b, valueExpression: claims.x}, {key: a.example/c, valueExpression: "''"}]}`,
			`{"sub":"anna","x":["1","2"]}`, `{"username":"anna","extra":{"a.example/b":["1","2"]}}`},
		{"extra that is a number", `claimMappings: {username: {expression: claims.sub}, extra: [{key: a.example/b, valueExpression: claims.x}]}`,
			`{"sub":"anna","x":1}`, `oidc: error evaluating extra claim expression: claims.x: expression must return a string or a list of strings`},

		{"a required claim", plain + ", claimValidationRules: [{claim: hd, requiredValue: shop}]", `{"sub":"anna","hd":"shop"}`, `{"username":"anna"}`},
		{"another value", plain + ", claimValidationRules: [{claim: hd, requiredValue: shop}]", `{"sub":"anna","hd":"x"}`, `oidc: required claim hd value does not match. Got = x, want = shop`},
		{"a value that is no text", plain + ", claimValidationRules: [{claim: hd, requiredValue: shop}]", `{"sub":"anna","hd":["shop"]}`, `oidc: parse claim hd: json: cannot unmarshal array into Go value of type string`},
		{"a required claim that is not there", plain + ", claimValidationRules: [{claim: hd, requiredValue: shop}]", `{"sub":"anna"}`, `oidc: required claim hd not present in ID token`},
		{"a rule", plain + `, claimValidationRules: [{expression: "claims.n == 1.0", message: not one}]`, `{"sub":"anna","n":1}`, `{"username":"anna"}`},
		{"a rule that does not hold", plain + `, claimValidationRules: [{expression: "claims.n == 1.0", message: not one}]`, `{"sub":"anna","n":2}`,
			`oidc: error evaluating claim validation expression: validation expression 'claims.n == 1.0' failed: not one`},
		{"a rule that fails", plain + `, claimValidationRules: [{expression: "claims.n == 1.0"}]`, `{"sub":"anna"}`,
			`oidc: error evaluating claim validation expression: expression 'claims.n == 1.0' resulted in error: no such key: n`},
		{"a rule about the user", plain + `, userValidationRules: [{expression: "user.groups.all(g, g != 'system:masters') && user.username == 'anna' && user.uid == '' && user.extra.size() == 0"}]`,
			`{"sub":"anna"}`, `{"username":"anna"}`},
		{"a rule about the user's ID", plain + `, userValidationRules: [{expression: "user.extra['authentication.kubernetes.io/credential-id'] == ['JTI=7']"}]`,
			`{"sub":"anna","jti":"7"}`, `{"username":"anna","extra":{"authentication.kubernetes.io/credential-id":["JTI=7"]}}`},
		{"a rule that the user breaks", plain + `, userValidationRules: [{expression: "!user.username.startsWith('system:')", message: reserved}]`, `{"sub":"system:admin"}`,
			`oidc: error evaluating user info validation rule: validation expression '!user.username.startsWith('system:')' failed: reserved`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var given claims
			if err := json.Unmarshal([]byte(c.claims), &given); err != nil {
				t.Fatal(err)
			}
			user, err := mapper(t, c.jwt).user(t.Context(), given)
			got := fmt.Sprint(err)
			if err == nil {
				encoded, err := json.Marshal(user)
				if err != nil {
					t.Fatal(err)
				}
				got = string(encoded)
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// FuzzClaims: whatever claims there are, the user has a name that the prefix begins, and groups that no rule refuses.
func FuzzClaims(f *testing.F) {
	i := mapper(f, `claimMappings: {username: {expression: "'o:' + claims.sub"}, groups: {expression: "claims.?groups.orValue([])"}, uid: {expression: "claims.?a.?b__dot__c.orValue('')"},
		extra: [{key: a.example/b, valueExpression: "claims.?x.orValue('')"}]}, claimValidationRules: [{expression: "!('evil' in claims)"}],
		userValidationRules: [{expression: "user.groups.all(g, g != 'system:masters')", message: reserved}]`)
	f.Add(`{"sub":"anna","groups":["a"],"a":{"b.c":"7"},"x":["y"]}`)
	f.Add(`{"sub":"anna","groups":"system:masters","evil":null}`)
	f.Add(`{"sub":"anna","groups":[["a"]],"a":[{"b.c":1e400}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var given claims
		if json.Unmarshal([]byte(text), &given) != nil {
			return
		}
		user, err := i.user(t.Context(), given)
		if err != nil {
			return
		}
		if _, evil := given["evil"]; evil || !strings.HasPrefix(user.Username, "o:") {
			t.Fatalf("%s is %v", text, user)
		}
		for _, g := range user.Groups {
			if g == "system:masters" || g == "" {
				t.Fatalf("%s is %v", text, user)
			}
		}
	})
}
