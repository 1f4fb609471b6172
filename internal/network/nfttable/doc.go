// Package nfttable replaces and removes whole nftables tables. Everything that skiff has in nftables is in tables of its own, so a table is the
// unit of cleaning up. The overlay, podnet and the proxy use it. It is empty on systems other than Linux.
//
// It must not import other packages of skiff: it knows nftables only.
package nfttable
