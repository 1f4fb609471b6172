// Package tokencache remembers for a short time what an authenticator that asks other servers said of a token, and has concurrent requests
// with the same token ask once. A token is kept only as a keyed hash.
//
// It must not import anything else of skiff but authn.
package tokencache
