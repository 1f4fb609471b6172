// Package signer checks what certificates, trust bundles and the volumes that project them say of signers.
package signer
