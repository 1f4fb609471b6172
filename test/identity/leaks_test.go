package identity_test

import (
	"crypto/rand"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoSecretComesOut plants secrets wherever a request can carry them, in requests that succeed and in requests that fail, and looks for them
// in the server's logs (at the most verbose level), error answers, metrics and Events.
func TestNoSecretComesOut(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	fromFile := strings.ToLower(rand.Text())
	if err := os.WriteFile(tokens, []byte(fromFile+",filed,1,\"writers,readers\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProgram(t, "-v", "4", "--token-auth-file", tokens)
	config := configOf(t, p.data, "admin")
	v := newSecretTracker(t, config)
	v.remember("the token file", fromFile)
	v.rememberKeys(p.data)

	defaultAccount(t, clientOf(t, config), "default") // pods need the default service account
	v.plantCredentials(fromFile)
	v.plantRaw()
	v.plantSecrets()
	v.plantBodies()
	v.plantPatches()
	v.plantBootstrapTokens()
	v.plantAccountTokens(p.data, config)

	v.check("an answer", strings.Join(v.answers, "\n"))
	for _, path := range []string{"/metrics", "/api/v1/events", "/apis/events.k8s.io/v1/events", "/debug/pprof/cmdline", "/readyz?verbose"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, v.host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		v.check(path, string(v.do(v.admin, r, path, 200)))
	}
	p.stop()
	log := string(p.logged())
	for _, expected := range []string{"failed to authenticate a request", "bootstrap token refused"} { // the log did mention the failures
		if !strings.Contains(log, expected) {
			t.Errorf("the log does not say %q:\n%s", expected, log)
		}
	}
	for line := range strings.Lines(log) {
		for _, where := range v.found(line) {
			t.Errorf("the log has what was planted in %s: %s", where, line)
		}
	}
	t.Logf("%d pieces looked for in %d answers and %d bytes of log", len(v.planted), len(v.answers), len(log))
}

// plantCredentials sends credentials of all kinds, most of them invalid.
func (v *secretTracker) plantCredentials(good string) {
	const pods = "/api/v1/pods"
	header := func(name, value string) []string { return []string{name, value} }
	foreign := encode(v.t, map[string]any{"alg": "ES256"}) + "." + encode(v.t, map[string]any{"iss": "https://elsewhere"})
	ours := encode(v.t, map[string]any{"alg": "ES256"}) + "." + encode(v.t, map[string]any{"iss": issuer})
	for _, a := range []attempt{
		{"a bearer token", "GET", pods, 401, "", "", header("Authorization", "Bearer SECRET")},
		{"a bearer token for a path", "GET", "/healthz", 401, "", "", header("Authorization", "Bearer SECRET")},
		{"a bearer token in capitals", "GET", pods, 401, "", "", header("Authorization", "BEARER SECRET")},
		{"two bearer tokens", "GET", pods, 401, "", "", header("Authorization", "Bearer SECRET SECRET")},
		{"a long bearer token", "GET", pods, 401, "", "", header("Authorization", "Bearer SECRET"+strings.Repeat("SECRET", 3000))},
		{"an Authorization header without scheme", "GET", pods, 403, "", "", header("Authorization", "SECRET")},
		{"a password", "GET", pods, 403, "", "", header("Authorization", "Basic BASE64")},
		{"a token that is none of ours", "GET", pods, 401, "", "", header("Authorization", "Bearer "+foreign+".SECRET")},
		{"a token with a wrong signature", "GET", pods, 401, "", "", header("Authorization", "Bearer "+ours+".SECRET")},
		{"a token that would be a bootstrap token", "GET", pods, 401, "", "", header("Authorization", "Bearer abcdef.SECRET")},
		{"the access_token parameter", "GET", pods + "?access_token=SECRET", 403, "", "", nil},
		{"the token parameter", "GET", "/version?token=SECRET", 200, "", "", nil},
		{"a parameter of a wrong request", "GET", pods + "?access_token=SECRET&limit=many", 403, "", "", nil},
		{"a front proxy's headers", "GET", pods, 403, "", "", []string{"X-Remote-User", "u", "X-Remote-Extra-Password", "SECRET"}},
		{"a cookie", "GET", pods, 403, "", "", header("Cookie", "session=SECRET")},
		{"a WebSocket's protocols", "GET", pods + "?watch=1", 403, "", "", header("Sec-Websocket-Protocol", bearerProtocol+"BASE64, base64.binary.k8s.io")},
	} {
		v.send(v.nobody, a)
	}
	for _, a := range []attempt{ // the administrator's certificate is valid, so the other credentials do not matter
		{"a bearer token beside a certificate", "GET", pods, 200, "", "", header("Authorization", "Bearer SECRET")},
		{"a parameter that is ignored", "GET", pods + "?access_token=SECRET", 200, "", "", nil},
		{"a parameter of a request that fails", "GET", pods + "?access_token=SECRET&limit=many", 400, "", "", nil},
		{"a parameter of a write that fails", "POST", "/api/v1/namespaces/default/pods?access_token=SECRET", 422, asJSON, "{}", nil},
		{"impersonation", "GET", pods, 200, "", "", []string{"Impersonate-User", "u", "Impersonate-Group", masters, "Impersonate-Extra-Password", "SECRET"}},
		{"impersonation that is refused", "GET", pods, 403, "", "", []string{"Impersonate-User", "u", "Impersonate-Extra-Password", "SECRET"}},
	} {
		v.send(v.admin, a)
	}
	filed := []string{"Authorization", "Bearer " + good}
	v.send(v.nobody, attempt{"a request with a good token", "GET", pods + "?access_token=SECRET", 403, "", "", filed})
	v.webSocket()
}

// plantRaw sends data that is not valid HTTP.
func (v *secretTracker) plantRaw() {
	v.t.Helper()
	settings := v.nobody.Transport.(*http.Transport).TLSClientConfig.Clone()
	settings.NextProtos = []string{"http/1.1"}
	for where, text := range map[string]string{
		"a header without a colon":    "GET /api HTTP/1.1\r\nHost: x\r\nAuthorization Bearer SECRET\r\n\r\n",
		"a header that is too long":   "GET /api HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer SECRET" + strings.Repeat("x", 2<<20) + "\r\n\r\n",
		"a line that is no request":   "SECRET\r\n\r\n",
		"a length that is no number":  "POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: SECRET\r\n\r\n",
		"an HTTP version that is not": "GET /api HTTP/SECRET\r\nHost: x\r\n\r\n",
	} {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(v.host, "https://"), settings)
		if err != nil {
			v.t.Fatal(err)
		}
		_, _ = io.WriteString(conn, strings.ReplaceAll(text, "SECRET", v.plant(where))) // the server may close the connection meanwhile
		_ = conn.CloseWrite()
		answer, _ := io.ReadAll(conn)
		conn.Close()
		v.answers = append(v.answers, string(answer))
	}
}

const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// webSocket sends a token in the subprotocols of a WebSocket, over HTTP/1.1.
func (v *secretTracker) webSocket() {
	v.t.Helper()
	transport := v.nobody.Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2, transport.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
	transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	defer transport.CloseIdleConnections()
	for _, protocols := range []string{bearerProtocol + "BASE64, v4.channel.k8s.io", bearerProtocol + "BASE64", bearerProtocol + "!BASE64, v4.channel.k8s.io"} {
		v.send(&http.Client{Transport: transport}, attempt{"a WebSocket's token", "GET", "/api/v1/pods?watch=1", 401, "", "", []string{"Connection", "Upgrade",
			"Upgrade", "websocket", "Sec-Websocket-Version", "13", "Sec-Websocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Sec-Websocket-Protocol", protocols}})
	}
}
