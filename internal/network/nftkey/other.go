//go:build !linux

// Package nftkey loads parts of packets into registers of nftables, which only Linux has.
package nftkey
