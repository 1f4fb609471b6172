package pki

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/util/keyutil"
)

// accountKeys is the name, without extension, of the files with the keys of service account tokens.
const accountKeys = "sa"

// maxAccountKeys bounds the keys that tokens are verified with.
const maxAccountKeys = 8

// accounts are the keys of service account tokens. They do not expire, so they are never renewed.
type accounts struct {
	signer  crypto.Signer
	publics []crypto.PublicKey
}

// accounts reads the keys of service account tokens and makes those that are missing or cut short. A new key is put before those in sa.pub, with
// which tokens signed before are still verified: to revoke them too, remove both files.
func (l *reconciliation) accounts() (*accounts, error) {
	path := l.path(accountKeys)
	key, err := readKey(path + ".key")
	if err != nil && !missingOrTorn(err) {
		return nil, err
	}
	if err != nil {
		if errors.Is(err, errTorn) {
			l.log.Warn("making a new key for service account tokens", "why", err)
		}
		made, err := newKey()
		if err != nil {
			return nil, err
		}
		keyPEM, err := keyutil.MarshalPrivateKeyToPEM(made)
		if err != nil {
			return nil, err
		}
		key = made
		l.write(path+".key", keyPEM)
	}
	publics, err := readPublicKeys(path + ".pub")
	if err != nil && !missingOrTorn(err) {
		return nil, err
	}
	own := key.Public()
	if !slices.ContainsFunc(publics, func(p crypto.PublicKey) bool { return samePublicKey(p, own) }) {
		publics = append([]crypto.PublicKey{own}, publics...)
		publics = publics[:min(len(publics), maxAccountKeys)]
		data, err := publicKeysPEM(publics)
		if err != nil {
			return nil, err
		}
		l.write(path+".pub", data)
	}
	return &accounts{signer: key, publics: publics}, nil
}

func readPublicKeys(path string) ([]crypto.PublicKey, error) {
	data, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	keys, err := keyutil.ParsePublicKeysPEM(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	publics := make([]crypto.PublicKey, len(keys))
	for i, k := range keys {
		publics[i] = k
	}
	return publics, nil
}

func publicKeysPEM(keys []crypto.PublicKey) ([]byte, error) {
	var out []byte
	for _, k := range keys {
		der, err := x509.MarshalPKIXPublicKey(k)
		if err != nil {
			return nil, err
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: keyutil.PublicKeyBlockType, Bytes: der})...)
	}
	return out, nil
}
