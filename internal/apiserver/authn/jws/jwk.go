package jws

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/base64"
	"math/big"
)

// JWK is a JSON Web Key (RFC 7517) of a public key.
type JWK struct {
	Use   string `json:"use"`
	Type  string `json:"kty"`
	ID    string `json:"kid"`
	Curve string `json:"crv,omitempty"`
	Alg   string `json:"alg"`
	X     string `json:"x,omitempty"`
	Y     string `json:"y,omitempty"`
	N     string `json:"n,omitempty"`
	E     string `json:"e,omitempty"`
}

// JWK returns the key in the form in which it is published.
func (k *Key) JWK() (JWK, error) {
	jwk := JWK{Use: "sig", ID: k.ID, Alg: k.Algorithm}
	encode := base64.RawURLEncoding.EncodeToString
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		jwk.Type = "RSA"
		jwk.N = encode(public.N.Bytes())
		jwk.E = encode(big.NewInt(int64(public.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := public.Bytes() // 4, x, y
		if err != nil {
			return JWK{}, err
		}
		jwk.Type, jwk.Curve = "EC", public.Curve.Params().Name
		jwk.X, jwk.Y = encode(point[1:1+k.half]), encode(point[1+k.half:])
	}
	return jwk, nil
}
