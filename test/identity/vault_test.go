package identity_test

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// vault plants secrets, and looks for them where they must not be.
type vault struct {
	t       *testing.T
	host    string
	admin   *http.Client
	nobody  *http.Client
	planted map[string]string // by a piece of a secret, or of what it looks like encoded: where it was planted
	answers []string          // every refusal and warning so far
}

func newVault(t *testing.T, config *rest.Config) *vault {
	t.Helper()
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	return &vault{t: t, host: config.Host, admin: showing(t, config, &pair), nobody: showing(t, config, nil), planted: map[string]string{}}
}

// piece is how much of a secret gives it away: enough that nothing else looks like it by chance.
const piece = 8

// plant makes a secret, and remembers what to look for.
func (v *vault) plant(where string) string {
	secret := strings.ToLower(rand.Text())
	v.remember(where, secret)
	return secret
}

// remember looks out for a secret from now on: for either end of it, as it is and as it would look encoded.
func (v *vault) remember(where, secret string) {
	for _, end := range []string{secret[:piece], secret[len(secret)-piece:]} {
		v.planted[end] = where
		v.planted[hex.EncodeToString([]byte(end))] = where
		v.planted[base64.StdEncoding.EncodeToString([]byte(end + "x"))[:piece*4/3]] = where // the last character depends on what follows
	}
	encoded := strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(secret)), "=")
	v.planted[encoded[len(encoded)-piece-2:]] = where
}

// found says which planted secrets are in a text.
func (v *vault) found(text string) []string {
	where := map[string]bool{}
	for look, at := range v.planted {
		if strings.Contains(text, look) {
			where[at] = true
		}
	}
	return slices.Sorted(maps.Keys(where))
}

// check fails if there is a secret in a text.
func (v *vault) check(what, text string) {
	v.t.Helper()
	for _, where := range v.found(text) {
		v.t.Errorf("%s has what was planted in %s", what, where)
	}
}

// attempt is a request that carries a secret, wherever the words SECRET and BASE64 stand in it, and how it is answered.
type attempt struct {
	where        string
	method, path string
	want         int
	kind         string // of the body
	body         string
	header       []string
}

// Kinds of bodies.
const (
	asJSON      = "application/json"
	asYAML      = "application/yaml"
	asProtobuf  = "application/vnd.kubernetes.protobuf"
	asJSONPatch = "application/json-patch+json"
	asMerge     = "application/merge-patch+json"
	asStrategic = "application/strategic-merge-patch+json"
	asApply     = "application/apply-patch+yaml"
)

// send plants a secret in a request, sends it, and looks for the secret in the refusal.
func (v *vault) send(client *http.Client, a attempt) []byte {
	v.t.Helper()
	secret := v.plant(a.where)
	put := strings.NewReplacer("SECRET", secret, "BASE64", base64.StdEncoding.EncodeToString([]byte(secret))).Replace
	r, err := http.NewRequestWithContext(v.t.Context(), a.method, v.host+put(a.path), strings.NewReader(put(a.body)))
	if err != nil {
		v.t.Fatal(err)
	}
	if a.kind != "" {
		r.Header.Set("Content-Type", a.kind)
	}
	for i := 0; i < len(a.header); i += 2 {
		r.Header.Add(a.header[i], put(a.header[i+1]))
	}
	return v.do(client, r, a.where, a.want)
}

func (v *vault) do(client *http.Client, r *http.Request, where string, want int) []byte {
	v.t.Helper()
	answer, err := client.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	if answer.StatusCode != want {
		v.t.Errorf("%s: %s %s: %d, want %d: %s", where, r.Method, r.URL.Path, answer.StatusCode, want, body)
	}
	said := strings.Join(answer.Header.Values("Warning"), "\n")
	if answer.StatusCode >= 400 {
		said += string(body)
	}
	v.answers = append(v.answers, said)
	for _, leak := range v.found(said) {
		v.t.Errorf("%s: the answer has what was planted in %s: %s", where, leak, said)
	}
	return body
}

// rememberKeys looks out for the private keys of the cluster.
func (v *vault) rememberKeys(dataDir string) {
	v.t.Helper()
	err := filepath.WalkDir(filepath.Join(dataDir, "pki"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".key" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		block, _ := pem.Decode(data)
		if block == nil {
			return fmt.Errorf("no key in %s", path)
		}
		for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n")[2:4] { // the first says only what kind of key it is
			v.planted[line[:min(32, len(line))]] = path
		}
		return nil
	})
	if err != nil {
		v.t.Fatal(err)
	}
}
