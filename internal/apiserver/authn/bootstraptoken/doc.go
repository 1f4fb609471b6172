// Package bootstraptoken recognizes the tokens with which machines join a cluster. A token has the form ID.SECRET, and the Secret
// bootstrap-token-ID in kube-system holds its secret, expiration and groups. Its user is system:bootstrap:ID.
//
// It must not import the API server's root package, its store or its cache: it reads Secrets through objects.Reader.
package bootstraptoken
