package requestheader_test

import (
	"bytes"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"skiff/internal/apiserver/authn/authntest"
	"skiff/internal/apiserver/authn/clientcert"
	"skiff/internal/apiserver/authn/requestheader"
)

func TestCustomHeaders(t *testing.T) {
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	ca := authntest.NewCA(t, authntest.Valid(now, "front-proxy"))
	bundle, err := clientcert.NewBundle(ca.PEM())
	if err != nil {
		t.Fatal(err)
	}
	headers := requestheader.Headers{User: []string{"x-user", "x-other"}, Group: []string{"x-group", "x-team"}, ExtraPrefix: []string{"x-a-", "x-b-"}}
	auth := requestheader.New(headers, func() *clientcert.Bundle { return bundle }, nil, clocktesting.NewFakePassiveClock(now))
	r := authntest.WithCertificates(ca.Issue(t, authntest.Valid(now, "any name will do")))
	for name, value := range map[string]string{"X-Other": "anna", "X-Team": "t", "X-B-Key": "2", "X-A-KEY": "1", "X-A-%zz": "odd", "Accept": "*/*", "X-Remote-User": "evil"} {
		r.Header.Set(name, value)
	}
	r.Header["X-Group"] = []string{"g", "", "h"}
	user, err := auth.Authenticate(r)
	if err != nil || user == nil {
		t.Fatal(user, err)
	}
	if user.Username != "anna" || user.UID != "" || strings.Join(user.Groups, ",") != "g,h,t" {
		t.Errorf("got %+v", user)
	}
	if got := strings.Join(user.Extra["key"], ","); got != "1,2" || len(user.Extra) != 2 || user.Extra["%zz"][0] != "odd" {
		t.Errorf("got extra %v", user.Extra)
	}
	if left := slices.Sorted(maps.Keys(r.Header)); strings.Join(left, ",") != "Accept,X-Remote-User" {
		t.Errorf("headers left: %v", left)
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		headers   requestheader.Headers
		allowed   []string
		err, warn string
	}{
		"standard":       {headers: requestheader.Standard, allowed: []string{"a"}},
		"none":           {},
		"empty header":   {headers: requestheader.Headers{User: []string{" ", "X-Remote-User"}}, err: `empty value in "requestheader-username-headers"`},
		"empty name":     {allowed: []string{""}, err: `empty value in "requestheader-allowed-names"`},
		"other user":     {headers: requestheader.Headers{User: []string{"X-User"}}, warn: "--requestheader-username-headers is set without specifying the standard X-Remote-User header"},
		"other extra":    {headers: requestheader.Headers{ExtraPrefix: []string{"X-"}}, warn: "standard X-Remote-Extra- header prefix"},
		"lower case":     {headers: requestheader.Headers{Group: []string{"x-remote-group"}}},
		"other UID":      {headers: requestheader.Headers{UID: []string{"X-Uid"}}, err: "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work"},
		"two for groups": {headers: requestheader.Headers{Group: []string{"X-Group", "X-Remote-Group"}}},
	} {
		var log bytes.Buffer
		err := c.headers.Validate(c.allowed, slog.New(slog.NewTextHandler(&log, nil)))
		if err == nil && c.err != "" || err != nil && err.Error() != c.err {
			t.Errorf("%s: got %v", name, err)
		}
		if c.warn == "" && log.Len() > 0 || !strings.Contains(log.String(), c.warn) {
			t.Errorf("%s: logged %s", name, &log)
		}
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	ca, other := authntest.NewCA(b, authntest.Valid(now, "front-proxy")), authntest.NewCA(b, authntest.Valid(now, "cluster"))
	bundle, err := clientcert.NewBundle(ca.PEM())
	if err != nil {
		b.Fatal(err)
	}
	auth := requestheader.New(requestheader.Standard, func() *clientcert.Bundle { return bundle }, nil, clocktesting.NewFakePassiveClock(now))
	for name, r := range map[string]*http.Request{"proxy": authntest.WithCertificates(ca.Issue(b, authntest.Valid(now, "proxy"))),
		"another CA": authntest.WithCertificates(other.Issue(b, authntest.Valid(now, "anna")))} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Header["X-Remote-User"], r.Header["X-Remote-Group"] = []string{"anna"}, []string{"admins"}
				_, _ = auth.Authenticate(r)
			}
		})
	}
}
