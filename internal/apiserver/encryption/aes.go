package encryption

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// gcm is AES-GCM with a random nonce, which is stored before the encrypted value. A key must be replaced long before 2^32 values have been encrypted with it.
type gcm struct{ aead cipher.AEAD }

func newGCM(block cipher.Block) (provider, error) {
	aead, err := cipher.NewGCM(block)
	return gcm{aead}, err
}

func (g gcm) overhead() int { return g.aead.NonceSize() + g.aead.Overhead() }

func (g gcm) seal(_ context.Context, b []byte, key string, value []byte) ([]byte, error) {
	start := len(b)
	b = appendRandom(b, g.aead.NonceSize())
	return g.aead.Seal(b, b[start:], value, []byte(key)), nil
}

func (g gcm) open(_ context.Context, key string, sealed []byte) ([]byte, bool, error) {
	n := g.aead.NonceSize()
	if len(sealed) < n {
		return nil, false, errShort
	}
	value, err := g.aead.Open(nil, sealed[:n], sealed[n:], []byte(key))
	return value, false, err
}

// appendRandom appends n random bytes.
func appendRandom(b []byte, n int) []byte {
	start := len(b)
	b = append(b, make([]byte, n)...)
	rand.Read(b[start:]) // never fails
	return b
}

// cbc is AES-CBC with a random initialization vector, which is stored before the encrypted value, and PKCS #7 padding. It does not authenticate what it
// decrypts.
type cbc struct{ block cipher.Block }

func newCBC(block cipher.Block) (provider, error) { return cbc{block}, nil }

func (c cbc) overhead() int { return 2 * aes.BlockSize }

func (c cbc) seal(_ context.Context, b []byte, _ string, value []byte) ([]byte, error) {
	start := len(b)
	b = appendRandom(b, aes.BlockSize)
	text := len(b)
	b = append(b, value...)
	for n, i := aes.BlockSize-len(value)%aes.BlockSize, 0; i < n; i++ {
		b = append(b, byte(n))
	}
	cipher.NewCBCEncrypter(c.block, b[start:text]).CryptBlocks(b[text:], b[text:])
	return b, nil
}

func (c cbc) open(_ context.Context, _ string, sealed []byte) ([]byte, bool, error) {
	if len(sealed) < aes.BlockSize {
		return nil, false, errShort
	}
	vector, text := sealed[:aes.BlockSize], sealed[aes.BlockSize:]
	if len(text)%aes.BlockSize != 0 {
		return nil, false, errors.New("the stored data is not a multiple of the block size")
	}
	if len(text) == 0 {
		return nil, false, errNotPadded
	}
	value := make([]byte, len(text))
	cipher.NewCBCDecrypter(c.block, vector).CryptBlocks(value, text)
	padding := value[len(value)-1]
	end := len(value) - int(padding)
	if padding == 0 || end < 0 {
		return nil, false, errNotPadded
	}
	for _, b := range value[end:] {
		if b != padding {
			return nil, false, errors.New("invalid padding on input")
		}
	}
	return value[:end], false, nil
}

var errNotPadded = errors.New("invalid PKCS7 data (empty or not padded)")

// seedSize is the size of seeds, and of the random bytes by which a key is derived from a seed.
const seedSize = 32

// seeded is AES-GCM with a key of its own for each value, which is derived from a seed and random bytes: these are stored before what gcm stores. A seed may
// be used for any number of values.
type seeded struct{ seed []byte }

func newSeeded(seed []byte) (seeded, error) {
	if len(seed) < seedSize {
		return seeded{}, fmt.Errorf("invalid seed length %d used for key generation", len(seed))
	}
	return seeded{seed}, nil
}

func (seeded) overhead() int { return seedSize + 12 + 16 }

// derive returns the provider of the key that random bytes select.
func (s seeded) derive(info []byte) (provider, error) {
	key, err := hkdf.Expand(sha256.New, s.seed, string(info), 32)
	if err != nil {
		return nil, fmt.Errorf("failed to KDF expand seed with info: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return newGCM(block)
}

func (s seeded) seal(ctx context.Context, b []byte, key string, value []byte) ([]byte, error) {
	start := len(b)
	b = appendRandom(b, seedSize)
	p, err := s.derive(b[start:])
	if err != nil {
		return nil, fmt.Errorf("failed to derive write key from KDF: %w", err)
	}
	return p.seal(ctx, b, key, value)
}

func (s seeded) open(ctx context.Context, key string, sealed []byte) ([]byte, bool, error) {
	if len(sealed) < seedSize {
		return nil, false, errShort
	}
	p, err := s.derive(sealed[:seedSize])
	if err != nil {
		return nil, false, fmt.Errorf("failed to derive read key from KDF: %w", err)
	}
	return p.open(ctx, key, sealed[seedSize:])
}
