package authn_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/authntest"
	"skiff/internal/apiserver/authn/basicauth"
)

func passwordFile(t *testing.T) *authntest.Subject {
	path := filepath.Join(t.TempDir(), "users.csv")
	const password, second = "sesame-1", "sesame-2"
	if err := os.WriteFile(path, []byte(password+",anna,7,\"admins,people\"\n"+second+",bert,8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := basicauth.Read(path, quiet)
	if err != nil {
		t.Fatal(err)
	}
	with := func(name, password string) func() *http.Request {
		return func() *http.Request {
			r := bare()
			r.SetBasicAuth(name, password)
			return r
		}
	}
	const invalid = "invalid username/password combination"
	return &authntest.Subject{
		Authenticator: file,
		Good:          with("anna", password),
		User:          authn.User{Username: "anna", UID: "7", Groups: []string{"admins", "people"}},
		Secrets:       []string{password, second},
		Bad: map[authntest.Hazard][]authntest.Attack{
			authntest.WrongKey: {
				{Name: "another user's password", Request: with("anna", second), Error: invalid},
				{Name: "an unknown user", Request: with("carl", password), Error: invalid},
			},
			authntest.Tampered: {
				{Name: "longer", Request: with("anna", password+"x"), Error: invalid},
				{Name: "shorter", Request: with("anna", password[1:]), Error: invalid},
				{Name: "in another case", Request: with("anna", strings.ToUpper(password)), Error: invalid},
			},
			authntest.Oversized: {{Name: "padded", Request: with("anna", password+strings.Repeat("x", basicauth.MaxCredential)), Error: invalid}},
			authntest.Empty: {
				{Name: "no password", Request: with("anna", ""), Error: invalid},
				{Name: "no name", Request: with("", password), Error: invalid},
				{Name: "no header", Request: bare},
			},
		},
		Exempt: map[authntest.Hazard]string{authntest.Expired: "passwords do not expire", authntest.NotYetValid: "passwords have no beginning",
			authntest.WrongAudience: "passwords have none", authntest.Revoked: "the file is read at the start, as upstream did"},
	}
}
