// Package configfile reads the file of --authentication-config: an AuthenticationConfiguration, which names the issuers of JSON Web Tokens
// and says at which paths requests may be anonymous. It also makes one of the --oidc-* flags. Upstream's own package validates it.
//
// It must not import anything else of skiff.
package configfile
