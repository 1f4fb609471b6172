package images

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skiff/internal/cluster/pki"
)

// client speaks to a registry as tools do.
type client struct {
	t    *testing.T
	url  string
	http *http.Client
}

func startRegistry(t *testing.T) (*Store, *client) { return startRegistryWith(t, limits{}) }

func startRegistryWith(t *testing.T, l limits) (*Store, *client) {
	t.Helper()
	s := newStore(t)
	v, trust := serve(t, s, l)
	t.Cleanup(func() {
		if err := v.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if parts, err := os.ReadDir(s.partDir()); err != nil || len(parts) > 0 {
			t.Errorf("uploads are left: %v, %v", parts, err)
		}
	})
	return s, &client{t: t, url: "https://" + v.Address(), http: trust}
}

const user, password = "skiff", "a password"

// serve serves a store, and returns a client that trusts the server.
func serve(t *testing.T, s *Store, l limits) (*Server, *http.Client) {
	t.Helper()
	authority, err := pki.NewAuthority("registry", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := authority.Issue(pki.Leaf{Name: "registry", User: "registry", Hosts: []string{"127.0.0.1", "localhost"}}, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	v, err := Serve(ServeOptions{
		Address: "127.0.0.1:0", Store: s, TLS: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}},
		Hosts: []string{"127.0.0.1", "localhost"}, Username: user, Password: password, limits: l,
	})
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority.PEM())
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	return v, &http.Client{Transport: transport}
}

type answered struct {
	code   int
	header http.Header
	body   string
}

// do sends a request; headers are name and value in turn.
func (c *client) do(method, path, body string, headers ...string) answered {
	c.t.Helper()
	if !strings.HasPrefix(path, "http") {
		path = c.url + path
	}
	req, err := http.NewRequestWithContext(c.t.Context(), method, path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.SetBasicAuth(user, password)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answered{resp.StatusCode, resp.Header, string(data)}
}

// send sends the beginning of a request, with credentials, on a connection of its own.
func (c *client) send(text string) *tls.Conn {
	c.t.Helper()
	at := strings.TrimPrefix(c.url, "https://")
	conn, err := tls.Dial("tcp", at, c.http.Transport.(*http.Transport).TLSClientConfig)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	line, rest, _ := strings.Cut(text, "\r\n")
	if _, err := fmt.Fprintf(conn, "%s\r\nHost: %s\r\nAuthorization: Basic %s\r\n%s", line, at, base64.StdEncoding.EncodeToString([]byte(user+":"+password)), rest); err != nil {
		c.t.Fatal(err)
	}
	return conn
}

// wants is do for a request whose answer must have a code and, if it is a refusal, an error code.
func (c *client) wants(code int, problem, method, path, body string, headers ...string) answered {
	c.t.Helper()
	a := c.do(method, path, body, headers...)
	if a.code != code || !strings.Contains(a.body, problem) {
		c.t.Errorf("%s %s: %d %s, want %d %s", method, path, a.code, a.body, code, problem)
	}
	return a
}

func (c *client) pushBlob(repository, content string) Digest {
	c.t.Helper()
	c.wants(201, "", "POST", fmt.Sprintf("/v2/%s/blobs/uploads/?digest=%s", repository, sum(content)), content)
	return sum(content)
}

// pushImage pushes an image of one layer and returns its manifest.
func (c *client) pushImage(repository, tag, layer string) string {
	c.t.Helper()
	m := manifest{SchemaVersion: 2, MediaType: mediaManifest,
		Config: &Descriptor{MediaType: mediaConfig, Digest: c.pushBlob(repository, "{}"), Size: 2},
		Layers: []Descriptor{{MediaType: mediaLayer, Digest: c.pushBlob(repository, layer), Size: int64(len(layer))}}}
	data, err := json.Marshal(m)
	if err != nil {
		c.t.Fatal(err)
	}
	c.wants(201, "", "PUT", "/v2/"+repository+"/manifests/"+tag, string(data), "Content-Type", mediaManifest)
	return string(data)
}

func TestPushAndPull(t *testing.T) {
	_, c := startRegistry(t)
	c.wants(200, "{}", "GET", "/v2/", "")
	m := c.pushImage("nginx", "1.0", "the layer")
	// The same image by all of its names, and as a mirror is asked.
	for _, path := range []string{
		"/v2/nginx/manifests/1.0", "/v2/library/nginx/manifests/1.0", "/v2/library/nginx/manifests/1.0?ns=docker.io", "/v2/docker.io/library/nginx/manifests/1.0",
		"/v2/library/nginx/manifests/" + string(sum(m)) + "?ns=docker.io",
	} {
		a := c.wants(200, m, "GET", path, "")
		if a.header.Get("Content-Type") != mediaManifest || a.header.Get("Docker-Content-Digest") != string(sum(m)) {
			t.Errorf("%s: %v", path, a.header)
		}
		h := c.wants(200, "", "HEAD", path, "")
		if h.header.Get("Content-Length") != fmt.Sprint(len(m)) || h.header.Get("Docker-Content-Digest") != string(sum(m)) {
			t.Errorf("HEAD %s: %v", path, h.header)
		}
	}
	c.wants(404, "MANIFEST_UNKNOWN", "GET", "/v2/library/nginx/manifests/1.0?ns=quay.io", "")
	c.wants(404, "MANIFEST_UNKNOWN", "GET", "/v2/nginx/manifests/2.0", "")

	blob := "/v2/nginx/blobs/" + string(sum("the layer"))
	c.wants(200, "the layer", "GET", blob+"?ns=docker.io", "")
	if a := c.wants(206, "layer", "GET", blob, "", "Range", "bytes=4-"); a.body != "layer" {
		t.Errorf("a range is %q", a.body)
	}
	if a := c.wants(200, "", "HEAD", blob, ""); a.header.Get("Content-Length") != "9" {
		t.Errorf("HEAD: %v", a.header)
	}
	c.wants(404, "BLOB_UNKNOWN", "GET", "/v2/nginx/blobs/"+string(sum("never")), "")
	c.wants(404, "", "HEAD", "/v2/nginx/blobs/"+string(sum("never")), "")

	c.pushImage("nginx", "1.1", "the layer")
	c.pushImage("registry.k8s.io/pause", "3.10", "the layer")
	c.wants(200, m[:10], "GET", "/v2/pause/manifests/3.10?ns=registry.k8s.io", "")
	c.wants(200, `{"name":"library/nginx","tags":["1.0","1.1"]}`, "GET", "/v2/nginx/tags/list", "")
	a := c.wants(200, `"tags":["1.0"]`, "GET", "/v2/nginx/tags/list?n=1", "")
	if link := a.header.Get("Link"); link != `</v2/nginx/tags/list?last=1.0&n=1>; rel="next"` {
		t.Errorf("the next page is %s", link)
	}
	c.wants(200, `"tags":["1.1"]`, "GET", "/v2/nginx/tags/list?last=1.0&n=1", "")
	c.wants(200, `{"repositories":["library/nginx","registry.k8s.io/pause"]}`, "GET", "/v2/_catalog", "")
	c.wants(404, "NAME_UNKNOWN", "GET", "/v2/never/tags/list", "")

	c.wants(202, "", "DELETE", "/v2/nginx/manifests/1.0", "")
	c.wants(404, "MANIFEST_UNKNOWN", "DELETE", "/v2/nginx/manifests/1.0", "")
	c.wants(200, m, "GET", "/v2/nginx/manifests/1.1", "")
}

func TestUploads(t *testing.T) {
	_, c := startRegistry(t)
	content := "in three parts"
	begin := func() string {
		t.Helper()
		a := c.wants(202, "", "POST", "/v2/a/b/blobs/uploads/?ns=quay.io", "")
		return a.header.Get("Location")
	}
	at := begin()
	if !strings.HasPrefix(at, "/v2/a/b/blobs/uploads/") || !strings.HasSuffix(at, "?ns=quay.io") {
		t.Errorf("the upload is at %s", at)
	}
	c.wants(202, "", "PATCH", at, content[:3], "Content-Range", "0-2")
	c.wants(416, "BLOB_UPLOAD_INVALID", "PATCH", at, content[8:], "Content-Range", "8-13")
	if a := c.wants(204, "", "GET", at, ""); a.header.Get("Range") != "0-2" {
		t.Errorf("so far: %s", a.header.Get("Range"))
	}
	c.wants(202, "", "PATCH", at, content[3:9])
	a := c.wants(201, "", "PUT", at+"&digest="+string(sum(content)), content[9:])
	c.wants(200, content, "GET", a.header.Get("Location"), "")
	c.wants(404, "BLOB_UPLOAD_UNKNOWN", "PATCH", at, "more")

	c.wants(201, "", "POST", "/v2/other/blobs/uploads/?mount="+string(sum(content))+"&from=a/b", "")
	c.wants(202, "", "POST", "/v2/other/blobs/uploads/?mount="+string(sum("never"))+"&from=a/b", "")

	at = begin()
	c.wants(400, "DIGEST_INVALID", "PUT", at+"&digest="+string(sum("something else")), content)
	c.wants(404, "BLOB_UPLOAD_UNKNOWN", "GET", at, "")
	c.wants(400, "DIGEST_INVALID", "POST", "/v2/a/blobs/uploads/?digest=sha256:12", content)
	c.wants(400, "DIGEST_INVALID", "POST", "/v2/a/blobs/uploads/?digest="+string(sum("x")), content)
	c.wants(404, "BLOB_UNKNOWN", "GET", "/v2/a/blobs/"+string(sum("something else")), "")
	at = begin()
	c.wants(204, "", "DELETE", at, "")
	c.wants(404, "BLOB_UPLOAD_UNKNOWN", "GET", at, "")
}

func TestUploadsAreBounded(t *testing.T) {
	s := newStore(t)
	u := &uploads{byID: map[string]*upload{}}
	now := time.Now()
	var first string
	for i := range maxUploads {
		id, err := u.begin(s, now)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = id
		}
	}
	if _, err := u.begin(s, now); err == nil {
		t.Errorf("more than %d uploads", maxUploads)
	}
	if _, err := u.begin(s, now.Add(2*idleUpload)); err != nil {
		t.Errorf("uploads that nobody goes on with are in the way: %v", err)
	}
	if up, _ := u.take(first); up != nil {
		t.Error("an upload that was given up is there")
	}
	u.close()
	if parts, err := os.ReadDir(s.partDir()); err != nil || len(parts) > 0 {
		t.Errorf("uploads are left: %v, %v", parts, err)
	}
}

func TestPushRefused(t *testing.T) {
	_, c := startRegistry(t)
	c.pushBlob("a", "{}")
	image := func(layer Digest) string {
		return fmt.Sprintf(`{"schemaVersion":2,"mediaType":"%s","config":{"digest":"%s","size":2},"layers":[{"digest":"%s","size":5}]}`, mediaManifest, sum("{}"), layer)
	}
	for _, r := range []struct{ body, mediaType, problem string }{
		{image(sum("never")), mediaManifest, "MANIFEST_BLOB_UNKNOWN"},
		{image("sha256:short"), mediaManifest, "MANIFEST_INVALID"},
		{image(sum("{}")), mediaIndex, "MANIFEST_INVALID"},
		{"{", mediaManifest, "MANIFEST_INVALID"},
		{`{"schemaVersion":1}`, "", "MANIFEST_INVALID"},
		{`{"schemaVersion":2,"mediaType":"application/json"}`, "", "MANIFEST_INVALID"},
		{`{"schemaVersion":2,"mediaType":"` + mediaManifest + `"}`, "", "MANIFEST_INVALID"},
		{strings.Repeat(" ", maxManifest+1), "", "MANIFEST_INVALID"},
	} {
		if a := c.do("PUT", "/v2/a/manifests/1", r.body, "Content-Type", r.mediaType); a.code < 400 || a.code > 499 || !strings.Contains(a.body, r.problem) {
			t.Errorf("%.80s as %s: %d %s, want %s", r.body, r.mediaType, a.code, a.body, r.problem)
		}
	}
	c.wants(400, "DIGEST_INVALID", "PUT", "/v2/a/manifests/"+string(sum("x")), image(sum("{}")), "Content-Type", mediaManifest)
	c.wants(404, "MANIFEST_UNKNOWN", "GET", "/v2/a/manifests/1", "")
	for _, path := range []string{"/v2/A/manifests/1", "/v2/a/manifests/-", "/v2/a/blobs/latest", "/v2/a/manifests/1?ns=../x", "/v2/manifests/1", "/v2/a/manifests/sha512:12"} {
		c.wants(400, "INVALID", "GET", path, "")
	}
	for _, path := range []string{"/", "/v1/", "/v2/a", "/v2/a/tags", "/v2/a/referrers/" + string(sum("x"))} {
		c.wants(404, "NOT_FOUND", "GET", path, "")
	}
	c.wants(405, "UNSUPPORTED", "POST", "/v2/a/manifests/1", "")
	c.wants(405, "UNSUPPORTED", "DELETE", "/v2/a/blobs/"+string(sum("{}")), "")
}

// Manifests that are pushed by digest are the parts of a list that comes after them.
func TestPushList(t *testing.T) {
	s, c := startRegistry(t)
	m := c.pushImage("multi", string(sum(c.manifestFor("multi", "one"))), "one")
	if got := s.names(t); got != "multi@"+string(sum(m)) {
		t.Errorf("images: %s", got)
	}
	list := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"%s","manifests":[{"mediaType":"%s","digest":"%s","size":%d}]}`, mediaIndex, mediaManifest, sum(m), len(m))
	c.wants(201, "", "PUT", "/v2/multi/manifests/1", list, "Content-Type", mediaIndex)
	if got := s.names(t); got != "multi:1" {
		t.Errorf("images: %s", got)
	}
	c.wants(202, "", "DELETE", "/v2/multi/manifests/1", "")
	if got := s.blobs(t); len(got) != 0 {
		t.Errorf("%d blobs are left", len(got))
	}
}

// manifestFor is the manifest that pushImage pushes.
func (c *client) manifestFor(repository, layer string) string {
	data, err := json.Marshal(manifest{SchemaVersion: 2, MediaType: mediaManifest,
		Config: &Descriptor{MediaType: mediaConfig, Digest: sum("{}"), Size: 2},
		Layers: []Descriptor{{MediaType: mediaLayer, Digest: sum(layer), Size: int64(len(layer))}}})
	if err != nil {
		c.t.Fatal(err)
	}
	return string(data)
}

// An upload whose sender goes away leaves nothing, and the server closes with others under way.
func TestBrokenUpload(t *testing.T) {
	s, c := startRegistry(t)
	at := c.wants(202, "", "POST", "/v2/a/blobs/uploads/", "").header.Get("Location")
	conn := c.send("PATCH " + at + " HTTP/1.1\r\nContent-Length: 100\r\n\r\na beginning")
	waitForPart(t, s, "a beginning") // a GET while the PATCH has not begun yet would have it refused, as the upload is then in use
	conn.Close()
	for range 500 {
		if c.do("GET", at, "").code == 404 && len(s.blobs(t)) == 0 {
			if parts, _ := os.ReadDir(s.partDir()); len(parts) == 0 {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the upload is still there")
}

// waitForPart waits until the one upload has these bytes on disk.
func waitForPart(t *testing.T, s *Store, want string) {
	t.Helper()
	for range 500 {
		if parts, _ := filepath.Glob(filepath.Join(s.partDir(), "part-*")); len(parts) == 1 {
			if data, _ := os.ReadFile(parts[0]); string(data) == want {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no upload has received %q", want)
}
