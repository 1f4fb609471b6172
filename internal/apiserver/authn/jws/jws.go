package jws

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha256" // the hashes the algorithms name
	_ "crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"sigs.k8s.io/json"
)

// MaxSize is the maximum length of a compact JWS.
const MaxSize = 64 << 10

// ErrSignature is returned for a signature that was not made with the key.
var ErrSignature = errors.New("invalid signature")

var (
	errForm      = errors.New("not a compact JWS")
	strictBase64 = base64.RawURLEncoding.Strict() // so that a signature has only one encoding
)

// Key verifies signatures.
type Key struct {
	ID        string // the SHA-256 of the key in DER
	Algorithm string
	public    crypto.PublicKey
	hash      crypto.Hash
	half      int // the length in bytes of each of the two numbers of an ECDSA signature
}

// NewKey returns the key for a public key, RSA or ECDSA.
func NewKey(public crypto.PublicKey) (*Key, error) {
	k := &Key{public: public}
	switch public := public.(type) {
	case *rsa.PublicKey:
		k.Algorithm, k.hash = "RS256", crypto.SHA256
	case *ecdsa.PublicKey:
		switch public.Curve {
		case elliptic.P256():
			k.Algorithm, k.hash = "ES256", crypto.SHA256
		case elliptic.P384():
			k.Algorithm, k.hash = "ES384", crypto.SHA384
		case elliptic.P521():
			k.Algorithm, k.hash = "ES512", crypto.SHA512
		default:
			return nil, errors.New("unknown private key curve, must be 256, 384, or 521")
		}
		k.half = (public.Curve.Params().BitSize + 7) / 8
	default:
		return nil, fmt.Errorf("unknown public key type %T, must be *rsa.PublicKey or *ecdsa.PublicKey", public)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("failed to serialize public key to DER format: %w", err)
	}
	hash := crypto.SHA256.New()
	hash.Write(der)
	k.ID = base64.RawURLEncoding.EncodeToString(hash.Sum(nil))
	return k, nil
}

func (k *Key) digest(text string) []byte {
	h := k.hash.New()
	h.Write([]byte(text))
	return h.Sum(nil)
}

// Signer signs payloads.
type Signer struct {
	Key     *Key
	private crypto.Signer
	header  string
}

// NewSigner returns a signer with a private key, RSA or ECDSA.
func NewSigner(private crypto.PrivateKey) (*Signer, error) {
	switch private.(type) {
	case *rsa.PrivateKey, *ecdsa.PrivateKey:
	default:
		return nil, fmt.Errorf("unknown private key type %T, must be *rsa.PrivateKey or *ecdsa.PrivateKey", private)
	}
	signer := private.(crypto.Signer)
	key, err := NewKey(signer.Public())
	if err != nil {
		return nil, err
	}
	header := fmt.Sprintf(`{"alg":%q,"kid":%q}`, key.Algorithm, key.ID)
	return &Signer{Key: key, private: signer, header: base64.RawURLEncoding.EncodeToString([]byte(header))}, nil
}

// Sign returns the signed payload as a compact JWS.
func (s *Signer) Sign(payload []byte) (string, error) {
	text := s.header + "." + base64.RawURLEncoding.EncodeToString(payload)
	digest := s.Key.digest(text)
	var signature []byte
	var err error
	switch private := s.private.(type) {
	case *rsa.PrivateKey:
		signature, err = rsa.SignPKCS1v15(rand.Reader, private, s.Key.hash, digest)
	case *ecdsa.PrivateKey:
		var x, y *big.Int
		if x, y, err = ecdsa.Sign(rand.Reader, private, digest); err == nil {
			signature = make([]byte, 2*s.Key.half)
			x.FillBytes(signature[:s.Key.half])
			y.FillBytes(signature[s.Key.half:])
		}
	}
	if err != nil {
		return "", err
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

// Text is a parsed JWS whose signature is not yet verified.
type Text struct {
	Algorithm string
	KeyID     string // empty if the header has none
	Payload   []byte

	signed    string
	signature []byte
}

// Parse parses a compact JWS. It does not verify the signature.
func Parse(compact string) (*Text, error) {
	if len(compact) > MaxSize || strings.Count(compact, ".") != 2 || strings.ContainsAny(compact, "\r\n") {
		return nil, errForm
	}
	dot := strings.LastIndexByte(compact, '.')
	t := &Text{signed: compact[:dot]}
	encodedHeader, encodedPayload, _ := strings.Cut(t.signed, ".")
	header, err := strictBase64.DecodeString(encodedHeader)
	if err != nil {
		return nil, errForm
	}
	if t.Payload, err = strictBase64.DecodeString(encodedPayload); err != nil {
		return nil, errForm
	}
	if t.signature, err = strictBase64.DecodeString(compact[dot+1:]); err != nil {
		return nil, errForm
	}
	var h struct {
		Algorithm string   `json:"alg"`
		KeyID     string   `json:"kid"`
		Critical  []string `json:"crit"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(header, &h); err != nil {
		return nil, errForm
	}
	if len(h.Critical) > 0 { // an implementation must refuse extensions it does not support, and this one supports none
		return nil, errForm
	}
	t.Algorithm, t.KeyID = h.Algorithm, h.KeyID
	return t, nil
}

// Verify returns ErrSignature unless the text was signed with the key and its algorithm.
func (t *Text) Verify(k *Key) error {
	if t.Algorithm != k.Algorithm {
		return ErrSignature
	}
	digest := k.digest(t.signed)
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		if rsa.VerifyPKCS1v15(public, k.hash, digest, t.signature) == nil {
			return nil
		}
	case *ecdsa.PublicKey:
		if len(t.signature) == 2*k.half &&
			ecdsa.Verify(public, digest, new(big.Int).SetBytes(t.signature[:k.half]), new(big.Int).SetBytes(t.signature[k.half:])) {
			return nil
		}
	}
	return ErrSignature
}
