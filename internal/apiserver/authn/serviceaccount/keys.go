package serviceaccount

import (
	"crypto"
	"errors"

	"skiff/internal/apiserver/authn/jws"
)

// Keys are the public keys that verify tokens: the current one, and former and future ones for rotation.
type Keys struct {
	all  []*jws.Key
	byID map[string][]*jws.Key
}

// NewKeys returns the set of public keys, without duplicates.
func NewKeys(public ...crypto.PublicKey) (*Keys, error) {
	if len(public) == 0 {
		return nil, errors.New("no keys provided for validating keyset")
	}
	keys := &Keys{byID: map[string][]*jws.Key{}}
	for _, p := range public {
		k, err := jws.NewKey(p)
		if err != nil {
			return nil, err
		}
		if len(keys.byID[k.ID]) > 0 {
			continue
		}
		keys.all = append(keys.all, k)
		keys.byID[k.ID] = append(keys.byID[k.ID], k)
	}
	return keys, nil
}

// named returns the keys with the ID, or all keys for a token without one.
func (k *Keys) named(id string) []*jws.Key {
	if id == "" {
		return k.all
	}
	return k.byID[id]
}
