package serviceaccount

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"skiff/internal/apiserver/authn/jws"
)

// The paths, media types and cache lifetime in seconds of the discovery documents.
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeysPath          = "/openid/v1/jwks"
	ConfigurationType = "application/json"
	KeysType          = "application/jwk-set+json"
	DocumentsMaxAge   = 3600
)

// Discovery holds the OpenID Connect documents with which third parties verify tokens.
type Discovery struct {
	Configuration []byte
	Keys          []byte
}

// NewDiscovery returns the documents. They refer to the keys at keysURI or, if that is empty, at the external address of this server. An
// issuer that is not an https URL is an error: such a server publishes nothing.
func NewDiscovery(issuer, keysURI, externalAddress string, keys *Keys) (*Discovery, error) {
	if err := checkIssuer(issuer); err != nil {
		return nil, err
	}
	keysURI, err := jwksURI(keysURI, externalAddress)
	if err != nil {
		return nil, err
	}
	set := struct {
		Keys []jws.JWK `json:"keys"`
	}{}
	var algorithms []string
	for n, k := range keys.all {
		jwk, err := k.JWK()
		if err != nil {
			return nil, fmt.Errorf("error constructing JWK for key #%d: %w", n, err)
		}
		set.Keys = append(set.Keys, jwk)
		algorithms = append(algorithms, k.Algorithm)
	}
	slices.Sort(algorithms)
	configuration := struct {
		Issuer        string   `json:"issuer"`
		KeysURI       string   `json:"jwks_uri"`
		ResponseTypes []string `json:"response_types_supported"`
		SubjectTypes  []string `json:"subject_types_supported"`
		Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	}{issuer, keysURI, []string{"id_token"}, []string{"public"}, slices.Compact(algorithms)}
	d := &Discovery{}
	if d.Configuration, err = json.Marshal(configuration); err != nil {
		return nil, err
	}
	if d.Keys, err = json.Marshal(set); err != nil {
		return nil, err
	}
	return d, nil
}

func checkIssuer(issuer string) error {
	if issuer == "" {
		return errors.New("empty issuer URL")
	}
	u, err := url.Parse(issuer)
	switch {
	case err != nil:
		return err
	case u.Scheme != "https":
		return fmt.Errorf("issuer URL must use https scheme, got: %s", issuer)
	case u.RawQuery != "":
		return fmt.Errorf("issuer URL may not include a query, got: %s", issuer)
	case u.Fragment != "":
		return fmt.Errorf("issuer URL may not include a fragment, got: %s", issuer)
	}
	return nil
}

func jwksURI(uri, externalAddress string) (string, error) {
	if uri != "" {
		u, err := url.Parse(uri)
		if err != nil {
			return "", err
		}
		if u.Scheme != "https" {
			return "", fmt.Errorf("jwksURI requires https scheme, parsed as: %v", u)
		}
		return uri, nil
	}
	if externalAddress == "" {
		return "", errors.New("either the JWKS URI or the default external address, or both, must be set")
	}
	wanted := url.URL{Scheme: "https", Host: externalAddress, Path: KeysPath}
	built, err := url.Parse(wanted.String())
	if err == nil && (built.Host != wanted.Host || built.Path != wanted.Path) { // the address has more than host and port
		err = fmt.Errorf("got %v, expected %v", built, &wanted)
	}
	if err != nil {
		return "", fmt.Errorf("attempted to build jwks_uri from external address %s, but could not construct a valid URL. Error: %w", externalAddress, err)
	}
	return wanted.String(), nil
}
