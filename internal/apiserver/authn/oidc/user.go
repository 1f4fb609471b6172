package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/cel/lazy"

	"skiff/internal/apiserver/authn"
)

// claims are those of a verified token, in JSON.
type claims map[string]json.RawMessage

func (c claims) decode(name string, into any) error {
	value, ok := c[name]
	if !ok {
		return errors.New("claim not present")
	}
	return json.Unmarshal(value, into)
}

// user returns the user that the configuration makes of the claims, if its rules allow that.
func (i *issuer) user(ctx context.Context, c claims) (*authn.User, error) {
	var value *lazy.MapValue
	if p := &i.programs; p.Username != nil || p.Groups != nil || p.UID != nil || p.Extra != nil || p.ClaimValidationRules != nil {
		value = claimsValue(c)
	}
	user := &authn.User{}
	var err error
	if user.Username, err = i.username(ctx, c, value); err != nil {
		return nil, err
	}
	if user.Groups, err = i.groups(ctx, c, value); err != nil {
		return nil, err
	}
	if user.UID, err = i.uid(ctx, c, value); err != nil {
		return nil, err
	}
	if user.Extra, err = i.extra(ctx, c, value); err != nil {
		return nil, err
	}
	if err := i.checkClaims(ctx, c, value); err != nil {
		return nil, err
	}
	if i.programs.UserValidationRules == nil {
		return user, nil
	}
	results, err := i.programs.UserValidationRules.EvalUser(ctx, userValue(user))
	if err == nil {
		err = checkRules(results)
	}
	if err != nil {
		return nil, fmt.Errorf("oidc: error evaluating user info validation rule: %w", err)
	}
	return user, nil
}

func (i *issuer) username(ctx context.Context, c claims, value *lazy.MapValue) (string, error) {
	if i.programs.Username != nil {
		name, err := text(ctx, i.programs.Username, value, "username")
		if err == nil && name == "" {
			err = errors.New("oidc: empty username via CEL expression is not allowed")
		}
		return name, err
	}
	mapping := &i.config.ClaimMappings.Username
	var name string
	if err := c.decode(mapping.Claim, &name); err != nil {
		return "", fmt.Errorf("oidc: parse username claims %q: %w", mapping.Claim, err)
	}
	if mapping.Claim == "email" && c["email_verified"] != nil {
		var verified bool
		if err := c.decode("email_verified", &verified); err != nil {
			return "", fmt.Errorf("oidc: parse 'email_verified' claim: %w", err)
		}
		if !verified {
			return "", errors.New("oidc: email not verified")
		}
	}
	return prefixed(mapping.Prefix, name), nil
}

func prefixed(prefix *string, name string) string {
	if prefix == nil {
		return name
	}
	return *prefix + name
}

func (i *issuer) groups(ctx context.Context, c claims, value *lazy.MapValue) ([]string, error) {
	mapping := &i.config.ClaimMappings.Groups
	if mapping.Claim != "" && c[mapping.Claim] != nil {
		var groups []string
		if c.decode(mapping.Claim, &groups) != nil {
			var one string
			if err := c.decode(mapping.Claim, &one); err != nil {
				return nil, fmt.Errorf("oidc: parse groups claim %q: %w", mapping.Claim, err)
			}
			groups = []string{one}
		}
		for n := range groups {
			groups[n] = prefixed(mapping.Prefix, groups[n])
		}
		return groups, nil
	}
	if i.programs.Groups == nil {
		return nil, nil
	}
	result, err := i.programs.Groups.EvalClaimMapping(ctx, value)
	var groups []string
	if err == nil {
		groups, err = texts(result.EvalResult)
	}
	if err != nil {
		return nil, fmt.Errorf("oidc: error evaluating group claim expression: %w", err)
	}
	return groups, nil
}

func (i *issuer) uid(ctx context.Context, c claims, value *lazy.MapValue) (string, error) {
	if claim := i.config.ClaimMappings.UID.Claim; claim != "" {
		var uid string
		if err := c.decode(claim, &uid); err != nil {
			return "", fmt.Errorf("oidc: parse uid claim %q: %w", claim, err)
		}
		return uid, nil
	}
	if i.programs.UID == nil {
		return "", nil
	}
	return text(ctx, i.programs.UID, value, "uid")
}

func (i *issuer) extra(ctx context.Context, c claims, value *lazy.MapValue) (map[string]authenticationv1.ExtraValue, error) {
	extra := map[string]authenticationv1.ExtraValue{}
	var id string
	if c["jti"] != nil && c.decode("jti", &id) == nil && id != "" {
		extra[authn.ExtraCredentialID] = authenticationv1.ExtraValue{"JTI=" + id}
	}
	if i.programs.Extra != nil {
		results, err := i.programs.Extra.EvalClaimMappings(ctx, value)
		if err != nil {
			return nil, err
		}
		for _, r := range results {
			mapping := r.ExpressionAccessor.(*authenticationcel.ExtraMappingExpression)
			values, err := texts(r.EvalResult)
			if err != nil {
				return nil, fmt.Errorf("oidc: error evaluating extra claim expression: %s: %w", mapping.Expression, err)
			}
			if len(values) > 0 {
				extra[mapping.Key] = values
			}
		}
	}
	if len(extra) == 0 {
		return nil, nil
	}
	return extra, nil
}

// checkClaims returns an error unless the claims are as the configuration requires.
func (i *issuer) checkClaims(ctx context.Context, c claims, value *lazy.MapValue) error {
	for claim, want := range i.requiredClaims {
		if c[claim] == nil {
			return fmt.Errorf("oidc: required claim %s not present in ID token", claim)
		}
		var got string
		if err := c.decode(claim, &got); err != nil {
			return fmt.Errorf("oidc: parse claim %s: %w", claim, err)
		}
		if got != want {
			return fmt.Errorf("oidc: required claim %s value does not match. Got = %s, want = %s", claim, got, want)
		}
	}
	if i.programs.ClaimValidationRules == nil {
		return nil
	}
	results, err := i.programs.ClaimValidationRules.EvalClaimMappings(ctx, value)
	if err == nil {
		err = checkRules(results)
	}
	if err != nil {
		return fmt.Errorf("oidc: error evaluating claim validation expression: %w", err)
	}
	return nil
}

// checkRules returns an error with the message of the first rule that does not hold.
func checkRules(results []authenticationcel.EvaluationResult) error {
	for _, r := range results {
		holds, ok := r.EvalResult.(types.Bool)
		if !ok {
			return errors.New("validation expression must return a boolean")
		}
		if holds {
			continue
		}
		message := ""
		switch rule := r.ExpressionAccessor.(type) {
		case *authenticationcel.ClaimValidationCondition:
			message = rule.Message
		case *authenticationcel.UserValidationCondition:
			message = rule.Message
		}
		return fmt.Errorf("validation expression '%s' failed: %s", r.ExpressionAccessor.GetExpression(), message)
	}
	return nil
}

// text returns the text that an expression about claims makes.
func text(ctx context.Context, program authenticationcel.ClaimsMapper, value *lazy.MapValue, what string) (string, error) {
	result, err := program.EvalClaimMapping(ctx, value)
	if err == nil {
		if s, ok := result.EvalResult.(types.String); ok {
			return string(s), nil
		}
		err = fmt.Errorf("%s claim expression must return a string", what)
	}
	return "", fmt.Errorf("oidc: error evaluating %s claim expression: %w", what, err)
}

var errNoTexts = errors.New("expression must return a string or a list of strings")

// texts returns the texts in the value, which is one or a list of them. Empty ones and null count as none.
func texts(value ref.Val) (all []string, err error) {
	add := func(v any) {
		s, ok := v.(string)
		if !ok {
			err = errNoTexts
		} else if s != "" {
			all = append(all, s)
		}
	}
	switch v := value.(type) {
	case types.String:
		add(string(v))
	case types.Null:
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			add(it.Next().Value())
		}
	default:
		err = errNoTexts
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}
