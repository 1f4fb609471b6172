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

// secretTracker plants secrets in requests, and looks for them where they must not be.
type secretTracker struct {
	t       *testing.T
	host    string
	admin   *http.Client
	nobody  *http.Client
	planted map[string]string // where a secret was planted, by a piece of it, plain or encoded
	answers []string          // all error answers and warnings so far
}

func newSecretTracker(t *testing.T, config *rest.Config) *secretTracker {
	t.Helper()
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	return &secretTracker{t: t, host: config.Host, admin: showing(t, config, &pair), nobody: showing(t, config, nil), planted: map[string]string{}}
}

// piece is the length of the pieces of a secret that are looked for: long enough that nothing else contains one by chance.
const piece = 8

// plant returns a new secret, and looks for it from now on.
func (v *secretTracker) plant(where string) string {
	secret := strings.ToLower(rand.Text())
	v.remember(where, secret)
	return secret
}

// remember looks for a secret from now on: for its first and its last piece, plain and base64-encoded.
func (v *secretTracker) remember(where, secret string) {
	for _, end := range []string{secret[:piece], secret[len(secret)-piece:]} {
		v.planted[end] = where
		v.planted[hex.EncodeToString([]byte(end))] = where
		v.planted[base64.StdEncoding.EncodeToString([]byte(end + "x"))[:piece*4/3]] = where // the last character depends on what follows
	}
	encoded := strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(secret)), "=")
	v.planted[encoded[len(encoded)-piece-2:]] = where
}

// found returns where the planted secrets in a text come from.
func (v *secretTracker) found(text string) []string {
	where := map[string]bool{}
	for look, at := range v.planted {
		if strings.Contains(text, look) {
			where[at] = true
		}
	}
	return slices.Sorted(maps.Keys(where))
}

// check fails the test if a text contains a planted secret.
func (v *secretTracker) check(what, text string) {
	v.t.Helper()
	for _, where := range v.found(text) {
		v.t.Errorf("%s has what was planted in %s", what, where)
	}
}

// attempt is a request with a secret in place of the words SECRET and BASE64, and its expected answer.
type attempt struct {
	where        string
	method, path string
	want         int
	kind         string // the content type of the body
	body         string
	header       []string
}

// The content types of bodies.
const (
	asJSON      = "application/json"
	asYAML      = "application/yaml"
	asProtobuf  = "application/vnd.kubernetes.protobuf"
	asJSONPatch = "application/json-patch+json"
	asMerge     = "application/merge-patch+json"
	asStrategic = "application/strategic-merge-patch+json"
	asApply     = "application/apply-patch+yaml"
)

// send plants a secret in a request, sends it, and looks for planted secrets in the answer.
func (v *secretTracker) send(client *http.Client, a attempt) []byte {
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

func (v *secretTracker) do(client *http.Client, r *http.Request, where string, want int) []byte {
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

// rememberKeys looks for the private keys of the cluster from now on.
func (v *secretTracker) rememberKeys(dataDir string) {
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
		for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n")[2:4] { // the first line has only the type of the key
			v.planted[line[:min(32, len(line))]] = path
		}
		return nil
	})
	if err != nil {
		v.t.Fatal(err)
	}
}
