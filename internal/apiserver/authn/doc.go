// Package authn determines the user of a request. An Authenticator handles one kind of credential; a Chain tries several in order, and the
// first that recognizes the request wins. Authentication comes first in the life of a request, before flow control, authorization and
// admission. Each kind of credential has a folder of its own:
//
//	requestheader   headers set by a front proxy
//	basicauth       a file of users and passwords
//	clientcert      client certificates
//	bearer          bearer tokens, which these recognize:
//	  tokenfile       a file of tokens
//	  serviceaccount  signed tokens of service accounts (jws signs them)
//	  bootstraptoken  Secrets in kube-system, for machines that join
//	  oidc            ID tokens of OpenID Connect providers, which flags or a file (configfile) name
//	  webhook         what another server knows; tokencache remembers it
//	impersonation   requests to be served as another user
//
// Package config puts them together from the server's flags.
//
// It must not import the API server's root package, its store, its cache or one of the folders below it.
package authn
