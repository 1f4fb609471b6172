// Package nftkey loads parts of packets into the registers of nftables, one after the other, as keys of sets and maps. The nftables rules of
// podnet and of the proxy use it. It is empty on systems other than Linux.
//
// It must not import other packages of skiff: it knows nftables only.
package nftkey
