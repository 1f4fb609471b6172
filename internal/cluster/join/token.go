package join

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
)

// Pin is the hash of the public key of an authority.
type Pin [sha256.Size]byte

// Token is what a machine joins with: the pin of the authority to trust, and the ID and secret of a bootstrap token.
type Token struct {
	Pin        Pin
	ID, Secret string
}

// pinPrefix is what kubeadm writes before such hashes. It is accepted and not written.
const pinPrefix = "sha256:"

var bootstrapTokenForm = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// ParseToken parses the form that Token.String returns.
func ParseToken(text string) (Token, error) {
	pin, bearer, ok := strings.Cut(strings.TrimSpace(text), "::")
	if !ok {
		if bootstrapTokenForm.MatchString(pin) {
			return Token{}, errors.New("the token does not say which cluster it is of: it is to be like PIN::abcdef.0123456789abcdef, as \"skiff token create\" prints it")
		}
		return Token{}, errors.New("this is not a token, which is like PIN::abcdef.0123456789abcdef, as \"skiff token create\" prints it")
	}
	var t Token
	raw, err := hex.DecodeString(strings.TrimPrefix(pin, pinPrefix))
	if err != nil || len(raw) != len(t.Pin) {
		return Token{}, fmt.Errorf("the token's part before :: is not the hash of a key, which has %d hexadecimal digits", 2*len(t.Pin))
	}
	if !bootstrapTokenForm.MatchString(bearer) {
		return Token{}, errors.New("the token's part after :: is not like abcdef.0123456789abcdef")
	}
	copy(t.Pin[:], raw)
	t.ID, t.Secret, _ = strings.Cut(bearer, ".")
	return t, nil
}

// String returns the whole token, as PIN::ID.SECRET.
func (t Token) String() string { return t.Pin.String() + "::" + t.Bearer() }

// Bearer returns the bootstrap token, which authenticates to the server.
func (t Token) Bearer() string { return t.ID + "." + t.Secret }

// NewToken returns a new token for the cluster with these authorities, in PEM. CreateToken makes it known to the cluster.
func NewToken(bundle []byte) (Token, error) {
	t := Token{ID: randomText(6), Secret: randomText(16)}
	var err error
	t.Pin, err = PinOf(bundle)
	return t, err
}

// randomText returns n random lower-case letters and digits.
func randomText(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, n)
	for i := range out {
		k, err := rand.Int(rand.Reader, big.NewInt(int64(len(letters))))
		if err != nil {
			panic(err) // crypto/rand.Reader does not fail
		}
		out[i] = letters[k.Int64()]
	}
	return string(out)
}

// String returns the pin in hexadecimal digits.
func (p Pin) String() string { return hex.EncodeToString(p[:]) }

// PinOf returns the pin of the first certificate of a bundle in PEM.
func PinOf(bundle []byte) (Pin, error) {
	certificates, err := parseBundle(bundle)
	if err != nil {
		return Pin{}, err
	}
	return pinOf(certificates[0]), nil
}

func pinOf(c *x509.Certificate) Pin { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// parseBundle parses certificates in PEM. It fails if there is none.
func parseBundle(bundle []byte) (certificates []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certificates = append(certificates, c)
	}
	if len(certificates) == 0 {
		return nil, errors.New("there is no certificate in the bundle")
	}
	return certificates, nil
}
