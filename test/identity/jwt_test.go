package identity_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

// A minimal JSON Web Token implementation, independent of the server's.

func part(t *testing.T, token string, n int) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(unbase64(t, strings.Split(token, ".")[n]), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func encode(t *testing.T, m map[string]any) string {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func clone(t *testing.T, m map[string]any) map[string]any {
	t.Helper()
	return part(t, encode(t, m), 0)
}

func unbase64(t *testing.T, s string) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func digest(s string) []byte {
	sum := sha256.Sum256([]byte(s))
	return sum[:]
}
