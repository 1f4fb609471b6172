// Package serviceaccount is the admission plugin ServiceAccount. It gives every pod an identity: the service account it names, or its
// namespace's default one, with a volume for the account's token in every container.
//
// It must not import the API server's root package, its store, its cache or another plugin: it reads through objects.Reader.
package serviceaccount
