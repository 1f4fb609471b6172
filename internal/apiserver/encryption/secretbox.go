package encryption

import (
	"context"
	"errors"

	"golang.org/x/crypto/nacl/secretbox"
)

// box is XSalsa20 and Poly1305 with a random nonce, which is stored before the encrypted value. The key of the store is not authenticated.
type box struct{ key [32]byte }

const boxNonce = 24

func (*box) overhead() int { return boxNonce + secretbox.Overhead }

func (x *box) seal(_ context.Context, b []byte, _ string, value []byte) ([]byte, error) {
	start := len(b)
	b = appendRandom(b, boxNonce)
	nonce := [boxNonce]byte(b[start:])
	return secretbox.Seal(b, value, &nonce, &x.key), nil
}

func (x *box) open(_ context.Context, _ string, sealed []byte) ([]byte, bool, error) {
	if len(sealed) < boxNonce+secretbox.Overhead {
		return nil, false, errShort
	}
	nonce := [boxNonce]byte(sealed)
	value, ok := secretbox.Open(nil, sealed[boxNonce:], &nonce, &x.key)
	if !ok {
		return nil, false, errors.New("output array was not large enough for encryption") // upstream's words for a wrong key
	}
	return value, false, nil
}
