// Package pki makes the certificates of a cluster, keeps them in files as kubeadm lays them out, and renews them while the cluster runs.
//
// A Manager reconciles the directory: it checks every file that there should be, and makes those that are missing, cut short, do not match or are about to expire.
// Starting, renewing and repairing are the same reconciliation: after a crash, with files cut short, or with a clock that was years off, the next one leaves a
// directory in which everything matches.
//
// # Why an authority keeps its key
//
// An authority is renewed under its key, name and key identifier. So what was signed before verifies against the new certificate, and what
// is signed after verifies against the old one until that ends: no moment exists at which everybody has to be told. It is renewed one
// lifetime of a leaf before its end, so whoever was given a kubeconfig can use it as long as its client certificate lasts, though it
// holds the authority's certificate of that day.
//
// A new key is made only where the old one cannot be read any more. Then the file holds the new certificate first and, until they end,
// the old ones behind it: certificates that other machines got are accepted until they end or are replaced.
//
// Renewal is no answer to a stolen key. To replace a key, empty its file: the running server notices, makes another and signs all leaves anew.
// Whoever trusts only the old certificate has to be given the new one, and the old one has to be taken out of the .crt file by hand,
// where it stays so that this can happen in peace.
//
// # Authorities of others
//
// A pair that lies in the directory before the first start is used and never changed: what skiff made bears its name as organization, and
// no other authority is overwritten. All certificates in the file are trusted, for clients too. A certificate without its key is an authority kept
// elsewhere; then every leaf must be put there too, also while the cluster runs.
//
// It must not import anything else of skiff.
package pki
