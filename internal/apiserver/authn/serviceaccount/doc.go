// Package serviceaccount issues the tokens of service accounts and authenticates them. A token is a signed set of claims (see jws): its
// service account, audiences and expiration, and the Pod, Secret or Node it is bound to. A verified signature is cached for a few seconds;
// the objects that the claims name are looked up every time, so that deleting the account or the bound object revokes the token at once.
//
// Tokens are issued for a TokenRequest (Issuer.Request), or are stored in Secrets of type kubernetes.io/service-account-token (legacy
// tokens, which have no audience and no expiration). Third parties verify them with what Discovery publishes.
//
// It must not import the API server's root package, its store or its cache: it reads and writes through objects.Store.
package serviceaccount
