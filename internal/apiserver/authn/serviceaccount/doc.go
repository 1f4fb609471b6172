// Package serviceaccount issues the tokens of service accounts and recognizes them. A token is a signed text (jws) of claims: whose it
// is, for which audiences, until when, and to which Pod, Secret or Node its life is bound. The signature is remembered for a moment; what
// the claims name is looked up every time, so that deleting the account or the bound object ends the token at once.
//
// Tokens come from TokenRequest (Issuer.Request), or lie in Secrets of type kubernetes.io/service-account-token, as all did once (legacy
// tokens: they have no audience and no end). Others can verify them with what Discovery publishes.
package serviceaccount
