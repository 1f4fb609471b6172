// Package encryption encrypts the values of resources before they are written to the store, and decrypts those that are read from it, as an
// EncryptionConfiguration (--encryption-provider-config) says: by aescbc, aesgcm, secretbox or a KMS v2 plugin, or not at all (identity). What is stored is
// byte for byte in upstream's form, so that upstream's API server reads an etcd of skiff's and the other way round.
//
// In the journey of a write it is the last step before the store: the registry calls ToStorage on the encoded object. The registry and the cache call
// FromStorage on what they read, so that memory holds clear values and the database, its log and its snapshots hold none. Without a configuration nothing of
// this package runs.
//
//   - config.go and validate.go read the file; providers.go finds the providers of a resource, of which the first writes and all read.
//   - aes.go and secretbox.go encrypt with keys of the file; kms.go with keys that a plugin encrypts, over gRPC (plugin.go).
//   - encryption.go holds the current configuration and reload.go replaces it.
//
// What differs from upstream: a KMS v1 provider is always refused, as upstream refuses it without its feature gate. Validation errors never contain a key.
// The keys that a plugin has decrypted are kept for the last 1,000 key sources instead of for a day.
//
// It must not import the registry, the cache or anything else of skiff: it knows bytes, keys of the store and names of resources.
package encryption
