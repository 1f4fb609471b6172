package serviceaccount

import (
	"crypto"
	"errors"

	"skiff/internal/apiserver/authn/jws"
)

// Keys are what tokens are verified with: one in use, and those that were before it or will be after it.
type Keys struct {
	all  []*jws.Key
	byID map[string][]*jws.Key
}

// NewKeys returns the set of public keys, in which each is once. What identifies a key is made from all of it.
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

// named returns the keys with an ID, or all if a token does not say which.
func (k *Keys) named(id string) []*jws.Key {
	if id == "" {
		return k.all
	}
	return k.byID[id]
}
