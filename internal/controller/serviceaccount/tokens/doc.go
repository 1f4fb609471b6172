// Package tokens writes tokens of service accounts into Secrets that ask for one: those of type kubernetes.io/service-account-token, which name their
// account in an annotation. Such a token does not expire; it is good for as long as its Secret and its account are there. The loop deletes the Secret
// of an account that is gone, and removes the name of a Secret that is gone from its account.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package tokens
