package apiserver

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"skiff/internal/apiserver/authn/authntest"
	"skiff/internal/apiserver/authn/clientcert"
	authnconfig "skiff/internal/apiserver/authn/config"
	"skiff/internal/apiserver/authn/requestheader"
)

func TestTrustData(t *testing.T) {
	now := time.Now()
	authority := func(name string, at time.Time) string {
		return string(authntest.NewCA(t, authntest.Valid(at, name)).PEM())
	}
	mine, old, other, front := authority("mine", now), authority("old", now.Add(-24*time.Hour)), authority("other", now), authority("front", now)
	of := func(text string) clientcert.CAs {
		bundle, err := clientcert.NewBundle([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return func() *clientcert.Bundle { return bundle }
	}
	whole := authnconfig.Trust{Clients: of(mine), FrontProxies: of(front), Headers: requestheader.Standard, FrontProxyNames: []string{"front-proxy-client"}}
	fresh := map[string]string{
		"client-ca-file": mine, "requestheader-client-ca-file": front, "requestheader-allowed-names": `["front-proxy-client"]`,
		"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-uid-headers": `["X-Remote-Uid"]`,
		"requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	}
	with := func(changes map[string]string) map[string]string {
		all := maps.Clone(fresh)
		maps.Copy(all, changes)
		return all
	}
	for name, test := range map[string]struct {
		trust        authnconfig.Trust
		before, want map[string]string
	}{
		"nothing before":        {whole, nil, fresh},
		"all is there":          {whole, fresh, fresh},
		"another server's, too": {whole, with(map[string]string{"client-ca-file": other, "requestheader-allowed-names": `["elsewhere"]`}), with(map[string]string{"client-ca-file": other + mine, "requestheader-allowed-names": `["elsewhere","front-proxy-client"]`})},
		"one that is over":      {whole, with(map[string]string{"client-ca-file": old + mine}), fresh},
		"nonsense":              {whole, with(map[string]string{"client-ca-file": "certificate?", "requestheader-group-headers": "null", "requestheader-allowed-names": "names"}), fresh},
		"clients only":          {authnconfig.Trust{Clients: of(mine)}, nil, map[string]string{"client-ca-file": mine}},
		"clients only, beside one who knows more": {authnconfig.Trust{Clients: of(mine)}, fresh, fresh},
		"front proxies of any name":               {authnconfig.Trust{FrontProxies: of(front)}, nil, map[string]string{"requestheader-client-ca-file": front, "requestheader-allowed-names": "[]", "requestheader-username-headers": "[]", "requestheader-group-headers": "[]", "requestheader-extra-headers-prefix": "[]"}},
		"none yet":                                {authnconfig.Trust{Clients: func() *clientcert.Bundle { return nil }}, nil, map[string]string{}},
	} {
		if got := trustData(test.trust, test.before, now); !maps.Equal(got, test.want) {
			var b bytes.Buffer
			for key, value := range got {
				b.WriteString(key + ": " + value + "\n")
			}
			t.Errorf("%s:\n%s", name, b.String())
		}
	}
}
