// Package oidc authenticates the ID tokens of OpenID Connect providers, which are JSON Web Tokens. For each issuer it fetches the provider's
// discovery document once and its keys whenever a token names one that it does not have, and it maps claims to a user as the
// AuthenticationConfiguration says, with CEL where that has expressions. go-oidc verifies tokens, as in upstream.
//
// A File follows the file of --authentication-config: a changed configuration takes over when it is valid and each of its providers has
// answered, otherwise the previous one stays.
//
// What differs from upstream: answers of providers are bounded, as are the keys that are fetched because of unknown tokens and the issuers
// of distributed claims. The egress type cluster is how skiff reaches pods and services, and controlplane is the machine's own network.
//
// It must not import anything else of skiff but authn, its bearer, its configfile and its tokencache.
package oidc
