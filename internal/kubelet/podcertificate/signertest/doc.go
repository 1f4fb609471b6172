// Package signertest has a signer of pod certificates for tests.
//
// It must not import other packages of skiff: it meets them only at the API.
package signertest
