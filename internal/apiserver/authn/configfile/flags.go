package configfile

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apiserver/pkg/apis/apiserver"
)

// OIDCFlags are the flags about one issuer, for when there is no file.
type OIDCFlags struct {
	IssuerURL      string            // --oidc-issuer-url
	ClientID       string            // --oidc-client-id
	CAFile         string            // --oidc-ca-file
	UsernameClaim  string            // --oidc-username-claim
	UsernamePrefix string            // --oidc-username-prefix
	GroupsClaim    string            // --oidc-groups-claim
	GroupsPrefix   string            // --oidc-groups-prefix
	SigningAlgs    []string          // --oidc-signing-algs
	RequiredClaims map[string]string // --oidc-required-claim
	Given          bool              // whether any of them was given
}

// noPrefix is the value of --oidc-username-prefix for user names as they are.
const noPrefix = "-"

// JWT returns the issuer that the flags describe, none if no issuer is given.
func (f *OIDCFlags) JWT() ([]apiserver.JWTAuthenticator, error) {
	if f.IssuerURL == "" || f.ClientID == "" {
		return nil, nil
	}
	prefix := f.UsernamePrefix
	switch {
	case prefix == noPrefix:
		prefix = ""
	case prefix == "" && f.UsernameClaim != "email":
		prefix = f.IssuerURL + "#"
	}
	jwt := apiserver.JWTAuthenticator{
		Issuer:        apiserver.Issuer{URL: f.IssuerURL, Audiences: []string{f.ClientID}},
		ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: f.UsernameClaim, Prefix: &prefix}},
	}
	if f.GroupsClaim != "" {
		jwt.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: f.GroupsClaim, Prefix: &f.GroupsPrefix}
	}
	for _, claim := range slices.Sorted(maps.Keys(f.RequiredClaims)) {
		jwt.ClaimValidationRules = append(jwt.ClaimValidationRules, apiserver.ClaimValidationRule{Claim: claim, RequiredValue: f.RequiredClaims[claim]})
	}
	if f.CAFile != "" {
		ca, err := Read(f.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		jwt.Issuer.CertificateAuthority = string(ca)
	}
	return []apiserver.JWTAuthenticator{jwt}, nil
}
