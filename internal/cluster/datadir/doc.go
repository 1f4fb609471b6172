// Package datadir guards a data directory, where keys, tokens and programs that run as root are kept: it makes one that only its owner may enter, refuses one
// that other users could change, and writes files there that are never half written. Every command passes here before it reads or writes anything of a cluster.
//
// It must not import anything else of skiff.
package datadir
