// Package bearer takes the bearer token out of a request, from the Authorization header or from the subprotocols of a WebSocket, and passes
// it to the token authenticators. No other package reads tokens from requests.
//
// It must not import the API server's root package, its store, its cache or a token authenticator.
package bearer
