// Package jws signs and verifies payloads in the compact form of JSON Web Signatures (RFC 7515) that bearer tokens have: header, payload
// and signature in base64, joined by dots. A key has exactly one algorithm, RS256 for RSA and ES256, ES384 or ES512 for the curves, and a
// token that names another algorithm is refused, "none" among them. What payloads contain is up to the caller.
//
// It must not import anything else of skiff.
package jws
