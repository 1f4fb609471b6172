package clientcert_test

import (
	"bytes"

	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"skiff/internal/apiserver/authn/authntest"
	"skiff/internal/apiserver/authn/clientcert"
)

var start = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func fixed(t testing.TB, ca *authntest.CA) clientcert.CAs {
	t.Helper()
	b, err := clientcert.NewBundle(ca.PEM())
	if err != nil {
		t.Fatal(err)
	}
	return func() *clientcert.Bundle { return b }
}

func TestUIDIsInTheSubject(t *testing.T) {
	ca := authntest.NewCA(t, authntest.Valid(start, "cluster"))
	auth := clientcert.New(fixed(t, ca), clocktesting.NewFakePassiveClock(start))
	uid := asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}
	for name, c := range map[string]struct {
		values    []any
		want, err string
	}{
		"none":  {nil, "", ""},
		"one":   {[]any{"u-1"}, "u-1", ""},
		"two":   {[]any{"u-1", "u-2"}, "", "expected 1 UID, but found multiple: [u-1 u-2]"},
		"empty": {[]any{""}, "", "UID cannot be an empty string"},
	} {
		template := authntest.Valid(start, "anna")
		for _, v := range c.values {
			template.Subject.ExtraNames = append(template.Subject.ExtraNames, pkix.AttributeTypeAndValue{Type: uid, Value: v})
		}
		user, err := auth.Authenticate(authntest.WithCertificates(ca.Issue(t, template)))
		if c.err != "" {
			if user != nil || err == nil || err.Error() != c.err {
				t.Errorf("%s: got %v, %v", name, user, err)
			}
		} else if err != nil || user.UID != c.want {
			t.Errorf("%s: got %v, %v", name, user, err)
		}
	}
}

func TestErrorNamesTheCertificate(t *testing.T) {
	ca, other := authntest.NewCA(t, authntest.Valid(start, "cluster")), authntest.NewCA(t, authntest.Valid(start, "other"))
	c := other.Issue(t, authntest.Valid(start, "anna"))
	_, err := clientcert.New(fixed(t, ca), clocktesting.NewFakePassiveClock(start)).Authenticate(authntest.WithCertificates(c))
	colons := strings.ReplaceAll(fmt.Sprintf("% X", c.AuthorityKeyId), " ", ":")
	if want := fmt.Sprintf("verifying certificate SN=%d, SKID=, AKID=%s failed: x509: certificate signed by unknown authority", c.SerialNumber, colons); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestRefusalsExpire(t *testing.T) {
	ca := authntest.NewCA(t, authntest.Valid(start, "cluster"))
	clock := clocktesting.NewFakePassiveClock(start)
	auth := clientcert.New(fixed(t, ca), clock)
	template := authntest.Valid(start, "anna")
	template.NotBefore = start.Add(time.Minute)
	r := authntest.WithCertificates(ca.Issue(t, template))
	if user, err := auth.Authenticate(r); user != nil || err == nil {
		t.Errorf("got %v, %v", user, err)
	}
	clock.SetTime(start.Add(time.Minute))
	if user, err := auth.Authenticate(r); user == nil || err != nil {
		t.Errorf("got %v, %v", user, err)
	}
}

func TestFileIsReloaded(t *testing.T) {
	ca, next := authntest.NewCA(t, authntest.Valid(start, "one")), authntest.NewCA(t, authntest.Valid(start, "two"))
	anna, bert := authntest.WithCertificates(ca.Issue(t, authntest.Valid(start, "anna"))), authntest.WithCertificates(next.Issue(t, authntest.Valid(start, "bert")))
	path := filepath.Join(t.TempDir(), "ca.crt")
	write := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(path+".new", data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(ca.PEM())
	clock := clocktesting.NewFakePassiveClock(start)
	var log bytes.Buffer
	cas, err := clientcert.FromFile(path, clock, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	auth := clientcert.New(cas, clock)
	expect := func(when string, annaKnown, bertKnown bool) {
		t.Helper()
		clock.SetTime(clock.Now().Add(time.Second))
		if user, _ := auth.Authenticate(anna); (user != nil) != annaKnown {
			t.Errorf("%s: anna is %v", when, user)
		}
		if user, _ := auth.Authenticate(bert); (user != nil) != bertKnown {
			t.Errorf("%s: bert is %v", when, user)
		}
	}
	first := cas()
	expect("at first", true, false)
	write(ca.PEM())
	expect("written again", true, false)
	if cas() != first {
		t.Error("the same content became another bundle: what was verified is forgotten for nothing")
	}
	write(append(ca.PEM(), next.PEM()...))
	expect("one more CA", true, true)
	write(next.PEM())
	expect("the first CA gone", false, true)
	write([]byte("nothing"))
	expect("file damaged", false, true)
	expect("file still damaged", false, true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("file gone", false, true)
	write(ca.PEM())
	expect("file back", true, false)
	if n := strings.Count(log.String(), "failed to reload"); n != 1 {
		t.Errorf("a failure must be logged once while it lasts, was %d times:\n%s", n, &log)
	}
}

func TestFileMustBeGoodAtFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.crt")
	clock, log := clocktesting.NewFakePassiveClock(start), slog.New(slog.DiscardHandler)
	if _, err := clientcert.FromFile(path, clock, log); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
	for content, want := range map[string]string{"": "missing content for CA bundle", "x": "error loading CA bundle"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := clientcert.FromFile(path, clock, log); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v", content, err)
		}
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	ca := authntest.NewCA(b, authntest.Valid(start, "cluster"))
	r := authntest.WithCertificates(ca.Issue(b, authntest.Valid(start, "anna", "admins")))
	clock := clocktesting.NewFakePassiveClock(start)
	bundle := fixed(b, ca)()
	b.Run("known", func(b *testing.B) {
		auth := clientcert.New(func() *clientcert.Bundle { return bundle }, clock)
		b.ReportAllocs()
		for b.Loop() {
			if user, err := auth.Authenticate(r); user == nil || err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("new", func(b *testing.B) {
		auth := clientcert.New(func() *clientcert.Bundle { again := *bundle; return &again }, clock)
		b.ReportAllocs()
		for b.Loop() {
			if user, err := auth.Authenticate(r); user == nil || err != nil {
				b.Fatal(err)
			}
		}
	})
}
