package jws

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"testing"
)

func privateKeys(t testing.TB) map[string]crypto.Signer {
	t.Helper()
	keys := map[string]crypto.Signer{}
	for name, curve := range map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = key
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	keys["RS256"] = key
	return keys
}

func TestOnlyTheSigningKeyVerifies(t *testing.T) {
	keys := privateKeys(t)
	for name, private := range keys {
		signer, err := NewSigner(private)
		if err != nil {
			t.Fatal(err)
		}
		compact, err := signer.Sign([]byte(`{"a":1}`))
		if err != nil {
			t.Fatal(err)
		}
		text, err := Parse(compact)
		if err != nil || text.Algorithm != name || text.KeyID != signer.Key.ID || string(text.Payload) != `{"a":1}` {
			t.Fatalf("%s: parsed %+v, %v", name, text, err)
		}
		for other, private := range keys {
			key, err := NewKey(private.Public())
			if err != nil {
				t.Fatal(err)
			}
			if err := text.Verify(key); (err == nil) != (other == name) {
				t.Errorf("signed by %s, verified by %s: %v", name, other, err)
			}
		}
	}
}

// The algorithm in the header must be the key's: a token must not choose how it is verified.
func TestAlgorithmIsTheKeys(t *testing.T) {
	for name, private := range privateKeys(t) {
		for _, algorithm := range []string{"none", "", "HS256", "RS512", "PS256", "es256", "ES256K"} {
			signer, err := NewSigner(private)
			if err != nil {
				t.Fatal(err)
			}
			signer.header = base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"` + algorithm + `"}`))
			compact, err := signer.Sign([]byte("{}"))
			if err != nil {
				t.Fatal(err)
			}
			text, err := Parse(compact)
			if err != nil {
				t.Fatal(err)
			}
			if text.Verify(signer.Key) == nil {
				t.Errorf("signed with %s, verified as %q", name, algorithm)
			}
		}
	}
}

// The examples of RFC 7515, appendices A.2 and A.3.
func TestVerifiesWhatOthersSigned(t *testing.T) {
	decode := func(s string) *big.Int {
		b, err := base64.RawURLEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return new(big.Int).SetBytes(b)
	}
	point := func(x, y string) *ecdsa.PublicKey {
		key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, decode(x).FillBytes(make([]byte, 32)), decode(y).FillBytes(make([]byte, 32))))
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	const payload = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
	for name, example := range map[string]struct {
		public  crypto.PublicKey
		compact string
	}{
		"RS256": {&rsa.PublicKey{E: 65537, N: decode("ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ")},
			"eyJhbGciOiJSUzI1NiJ9." + payload + ".cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"},
		"ES256": {point("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"),
			"eyJhbGciOiJFUzI1NiJ9." + payload + ".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"},
	} {
		key, err := NewKey(example.public)
		if err != nil {
			t.Fatal(err)
		}
		text, err := Parse(example.compact)
		if err != nil {
			t.Fatal(err)
		}
		if err := text.Verify(key); err != nil || text.KeyID != "" {
			t.Errorf("%s: %v, key ID %q", name, err, text.KeyID)
		}
	}
}

func TestRefusesKeysItCannotUse(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	small, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []crypto.PrivateKey{edwards, small, "text", nil} {
		if _, err := NewSigner(key); err == nil {
			t.Errorf("%T: signer made", key)
		}
	}
	if _, err := NewKey(edwards.Public()); err == nil {
		t.Error("key made for an algorithm it does not know")
	}
}

func TestRefusesOtherForms(t *testing.T) {
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	rest := "." + encode(`{}`) + "." + encode("signature")
	for name, compact := range map[string]string{
		"empty":                      "",
		"two parts":                  "e30.e30",
		"JSON form":                  `{"payload":"e30","signatures":[]}`,
		"padding":                    encode(`{"alg":"ES256"}`) + "." + encode(`{}`) + "=." + encode("signature"),
		"header that is no JSON":     encode(`alg`) + rest,
		"header that is a list":      encode(`[]`) + rest,
		"algorithm that is a number": encode(`{"alg":1}`) + rest,
		"critical header":            encode(`{"alg":"ES256","crit":["b64"],"b64":false}`) + rest,
		"long":                       encode(`{"alg":"ES256"}`) + "." + strings.Repeat("A", MaxSize) + ".AAAA",
	} {
		if text, err := Parse(compact); err == nil {
			t.Errorf("%s: parsed as %+v", name, text)
		}
	}
	if text, err := Parse(encode(`{"ALG":"ES256"}`) + rest); err != nil || text.Algorithm != "" {
		t.Errorf("names in headers have a case: %+v, %v", text, err)
	}
}

func TestJWKHoldsTheKey(t *testing.T) {
	for name, private := range privateKeys(t) {
		key, err := NewKey(private.Public())
		if err != nil {
			t.Fatal(err)
		}
		jwk, err := key.JWK()
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(jwk)
		if err != nil {
			t.Fatal(err)
		}
		kind, begin := "EC", `{"use":"sig","kty":"EC","kid":"`+key.ID+`","crv":"P-`
		if name == "RS256" {
			kind, begin = "RSA", `{"use":"sig","kty":"RSA","kid":"`+key.ID+`","alg":"RS256","n":"`
		}
		if jwk.Type != kind || jwk.Alg != name || !strings.HasPrefix(string(data), begin) {
			t.Errorf("%s: %s", name, data)
		}
		if kind == "EC" && (len(jwk.X) != base64.RawURLEncoding.EncodedLen(key.half) || len(jwk.Y) != len(jwk.X)) {
			t.Errorf("%s: coordinates of %d and %d letters", name, len(jwk.X), len(jwk.Y))
		}
	}
}

// FuzzParse looks for texts that crash the parser, and for a second encoding of a text that is verified.
func FuzzParse(f *testing.F) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	signer, err := NewSigner(private)
	if err != nil {
		f.Fatal(err)
	}
	good, err := signer.Sign([]byte(`{"iss":"x","aud":["a"],"exp":1}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add("..")
	f.Add(`eyJhbGciOiJub25lIn0.e30.`)
	f.Add(good[:len(good)-1])
	f.Fuzz(func(t *testing.T, compact string) {
		text, err := Parse(compact)
		if err != nil {
			return
		}
		if len(compact) > MaxSize {
			t.Errorf("parsed %d bytes", len(compact))
		}
		if text.Verify(signer.Key) == nil && compact != good {
			t.Errorf("verified, but never signed: %q", compact)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	for name, private := range privateKeys(b) {
		signer, err := NewSigner(private)
		if err != nil {
			b.Fatal(err)
		}
		compact, err := signer.Sign([]byte(`{"iss":"x"}`))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				text, err := Parse(compact)
				if err != nil {
					b.Fatal(err)
				}
				if err := text.Verify(signer.Key); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
