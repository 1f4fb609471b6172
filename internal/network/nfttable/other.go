//go:build !linux

// Package nfttable replaces and removes tables of nftables, which only Linux has.
package nfttable
