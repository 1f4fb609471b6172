package basicauth

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func parseText(content string) (*Authenticator, string, error) {
	var log bytes.Buffer
	a, err := parse(strings.NewReader(content), "users.csv", slog.New(slog.NewTextHandler(&log, nil)))
	return a, log.String(), err
}

func with(authorization string) *http.Request {
	return &http.Request{Header: http.Header{"Authorization": {authorization}}}
}

func basic(name, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
}

func TestFile(t *testing.T) {
	a, log, err := parseText("sesame-1,anna,1,\"a,b\"\nsesame-2,bert,2\nsesame-3,bert,4,c,ignored\n,carl,5\n\"a:b,c\",dora,6,\"\"\n")
	if err != nil {
		t.Fatal(err)
	}
	invalid := "error: invalid username/password combination"
	for _, c := range [][2]string{
		{basic("anna", "sesame-1"), "anna 1 a|b"},
		{"bASIC " + strings.TrimPrefix(basic("anna", "sesame-1"), "Basic "), "anna 1 a|b"},
		{basic("anna", "sesame-2"), invalid},
		{basic("bert", "sesame-2"), invalid},
		{basic("bert", "sesame-3"), "bert 4 c"},
		{basic("carl", ""), "carl 5 "},
		{basic("carl", "x"), invalid},
		{basic("dora", "a:b,c"), "dora 6 "},
		{basic("eve", ""), invalid},
		{basic("", ""), invalid},
		{basic("anna", strings.Repeat("x", MaxCredential)), invalid},
		{"Basic anna", "nobody"},
		{"Bearer sesame-1", "nobody"},
		{"Bearer " + strings.Repeat("x", 2*MaxCredential), "nobody"},
		{"", "nobody"},
	} {
		r := with(c[0])
		user, err := a.Authenticate(r)
		got := "nobody"
		switch {
		case err != nil:
			got = "error: " + err.Error()
		case user != nil:
			got = user.Username + " " + user.UID + " " + strings.Join(user.Groups, "|")
		}
		if got != c[1] {
			t.Errorf("%q: got %q, want %q", c[0], got, c[1])
		}
		if (user != nil) != (r.Header.Get("Authorization") == "" && c[0] != "") {
			t.Errorf("%q: the header is now %q", c[0], r.Header.Get("Authorization"))
		}
	}
	if !strings.Contains(log, "duplicate username") || !strings.Contains(log, "record=3") || strings.Contains(log, "sesame") {
		t.Errorf("logged %s", log)
	}
}

func TestBadFiles(t *testing.T) {
	for content, want := range map[string]string{
		"sesame,anna\n":        "password file 'users.csv' must have at least 3 columns (password, user name, user uid), found 2",
		"sesame,\"anna\"x,1\n": "line 1",
		"a,anna,1\nsesame,b\n": "found 2",
	} {
		if _, _, err := parseText(content); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%q: got %v", content, err)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler)); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}

// FuzzFile: a file that is accepted authenticates a user by the password of the last line with that name, and by no other.
func FuzzFile(f *testing.F) {
	f.Add("sesame-1,anna,1,\"a,b\"\nsesame-2,bert,2\n", "anna", "sesame-1")
	f.Add(",carl,5\n", "carl", "")
	f.Fuzz(func(t *testing.T, content, name, password string) {
		a, _, err := parseText(content)
		if err != nil || strings.Contains(name, ":") || len(name)+len(password) >= MaxCredential {
			return
		}
		lines := csv.NewReader(strings.NewReader(content))
		lines.FieldsPerRecord = -1
		records, err := lines.ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		want := false
		for _, record := range records {
			if record[1] == name {
				want = record[0] == password
			}
		}
		user, err := a.Authenticate(with(basic(name, password)))
		if (user != nil) != want || (err == nil) != want || want && user.Username != name {
			t.Fatalf("got user %v and error %v", user, err)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	a, _, err := parseText("sesame-1,anna,1,\"a,b\"\n")
	if err != nil {
		b.Fatal(err)
	}
	header := basic("anna", "sesame-1")
	r := with(header)
	b.ReportAllocs()
	for b.Loop() {
		r.Header.Set("Authorization", header)
		_, _ = a.Authenticate(r)
	}
}
