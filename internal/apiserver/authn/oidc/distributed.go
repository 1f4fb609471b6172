package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"skiff/internal/apiserver/authn/bearer"
)

// maxClaimIssuers bounds the issuers of distributed claims. There should be very few.
const maxClaimIssuers = 64

// distributedClaims gets the claim of groups from where a token says that it is (OpenID Connect Core 1.0, section 5.6.2): from an endpoint
// that answers with another token, which may be another issuer's.
type distributedClaims struct {
	issuer *issuer
	claim  string

	mu      sync.Mutex
	issuers map[string]*claimIssuer
}

// claimIssuer is an issuer of distributed claims, whose configuration is fetched when it is first needed.
type claimIssuer struct {
	mu       sync.Mutex
	verifier *verifier
	failedAt time.Time
}

// endpoint is where a claim is.
type endpoint struct {
	URL         string `json:"endpoint,omitempty"`
	AccessToken string `json:"access_token,omitempty"`
	JWT         string `json:"JWT,omitempty"` // an aggregated claim, which is not supported
}

// expand adds the claim to c if it is distributed and not there.
func (d *distributedClaims) expand(ctx context.Context, c claims) error {
	if _, ok := c[d.claim]; ok {
		return nil
	}
	names, ok := c["_claim_names"]
	if !ok {
		return nil
	}
	sourceOf := map[string]string{}
	if err := json.Unmarshal(names, &sourceOf); err != nil {
		return fmt.Errorf("oidc: error parsing distributed claim names: %w", err)
	}
	encoded, ok := c["_claim_sources"]
	if !ok {
		return errors.New("oidc: no claim sources")
	}
	var sources map[string]endpoint
	if err := json.Unmarshal(encoded, &sources); err != nil {
		return fmt.Errorf("oidc: could not parse claim sources: %w", err)
	}
	source, ok := sourceOf[d.claim]
	if !ok {
		return nil
	}
	e, ok := sources[source]
	switch {
	case !ok:
		return fmt.Errorf("id token _claim_names contained a source %s missing in _claims_sources", source)
	case e.URL == "":
		return nil
	}
	value, err := d.get(ctx, e)
	if err == nil {
		c[d.claim] = value
	}
	return err
}

// get returns the claim's value from the endpoint.
func (d *distributedClaims) get(ctx context.Context, e endpoint) (json.RawMessage, error) {
	token, err := d.fetch(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("while getting distributed claim %q: %w", d.claim, err)
	}
	name, err := unverifiedIssuer(token)
	if err != nil {
		return nil, fmt.Errorf("getting untrusted issuer from endpoint %v failed for claim %q: %w", e.URL, d.claim, err)
	}
	v, err := d.verifier(name)
	if err != nil {
		return nil, fmt.Errorf("verifying untrusted issuer %v failed: %w", name, err)
	}
	c, err := v.verify(ctx, token)
	if err != nil {
		return nil, fmt.Errorf("verify distributed claim token: %w", err)
	}
	value, ok := c[d.claim]
	if !ok {
		return nil, fmt.Errorf("jwt returned by distributed claim endpoint %q did not contain claim: %v", e.URL, d.claim)
	}
	return value, nil
}

// fetch returns the token with which the endpoint answers.
func (d *distributedClaims) fetch(ctx context.Context, e endpoint) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL, nil)
	if err != nil {
		return "", fmt.Errorf("while calling %v: %w", e.URL, err)
	}
	if e.AccessToken != "" {
		r.Header.Set("Authorization", "Bearer "+e.AccessToken)
	}
	answer, err := d.issuer.client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if answer.StatusCode < http.StatusOK || answer.StatusCode > http.StatusIMUsed {
		return "", fmt.Errorf("error while getting distributed claim JWT: %v", answer.Status)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, bearer.MaxToken+1))
	if err != nil || len(body) > bearer.MaxToken {
		return "", errors.New("could not decode distributed claim response")
	}
	return string(body), nil
}

// verifier returns what verifies the tokens of an issuer of claims.
func (d *distributedClaims) verifier(issuer string) (*verifier, error) {
	d.mu.Lock()
	known := d.issuers[issuer]
	if known == nil && len(d.issuers) < maxClaimIssuers {
		known = &claimIssuer{}
		d.issuers[issuer] = known
	}
	d.mu.Unlock()
	if known == nil {
		return nil, fmt.Errorf("there are more than %d issuers of distributed claims", maxClaimIssuers)
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	now := d.issuer.clock.Now()
	if known.verifier == nil && now.Sub(known.failedAt) >= d.issuer.retry {
		v, err := d.issuer.discover(issuer, false)
		if err != nil {
			known.failedAt = now
			d.issuer.log.Error("failed to get the configuration of an issuer of distributed claims", "issuer", issuer, "err", err)
		}
		known.verifier = v
	}
	if known.verifier == nil {
		return nil, fmt.Errorf("verifier not initialized for issuer: %q", issuer)
	}
	return known.verifier, nil
}
