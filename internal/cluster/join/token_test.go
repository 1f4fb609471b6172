package join

import (
	"strings"
	"testing"
)

func TestTokens(t *testing.T) {
	pin := strings.Repeat("0a", 32)
	for _, text := range []string{pin + "::abcdef.0123456789abcdef", " sha256:" + pin + "::abcdef.0123456789abcdef\n"} {
		token, err := ParseToken(text)
		if err != nil || token.String() != pin+"::abcdef.0123456789abcdef" || token.ID != "abcdef" || token.Bearer() != "abcdef.0123456789abcdef" {
			t.Errorf("%q: %v, %v", text, token, err)
		}
	}
	for text, want := range map[string]string{
		"":                                    "not a token",
		"abcdef.0123456789abcdef":             "does not say which cluster",
		"::abcdef.0123456789abcdef":           "not the hash of a key",
		pin[2:] + "::abcdef.0123456789abcdef": "64 hexadecimal digits",
		pin + "::abcdef":                      "not like abcdef.0123456789abcdef",
		pin + "::ABCDEF.0123456789abcdef":     "not like abcdef.0123456789abcdef",
		strings.Repeat("zz", 32) + "::abcdef.0123456789abcdef": "not the hash of a key",
	} {
		if _, err := ParseToken(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestServerURLs(t *testing.T) {
	for text, want := range map[string]string{
		"https://192.0.2.1:6443":         "https://192.0.2.1:6443",
		"192.0.2.1":                      "https://192.0.2.1:6443",
		"api.example:443":                "https://api.example:443",
		"https://[2001:db8::1]":          "https://[2001:db8::1]:6443",
		"https://api.example/some/path?": "https://api.example:6443",
	} {
		if u, err := ServerURL(text); err != nil || u.String() != want {
			t.Errorf("%q: %v, %v", text, u, err)
		}
	}
	for text, want := range map[string]string{"": "--server is needed", "http://192.0.2.1": "https://", "https://": "is not like", "https://a b": "is not like"} {
		if _, err := ServerURL(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
