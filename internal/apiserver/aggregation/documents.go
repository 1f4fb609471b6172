package aggregation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

const (
	// maxRoot bounds the list of a server's OpenAPI documents.
	maxRoot = 1 << 20
	// maxDocument bounds an OpenAPI document.
	maxDocument = 16 << 20
)

// documents is what is known of the OpenAPI documents of a server.
type documents struct {
	hash  string // changes when the documents do
	query string // of the v3 document's URL
	v3    bool   // the server has OpenAPI v3
	// failures counts the documents that could not be fetched: another number has them fetched again.
	failures int
	put      string // the hash with which they were put last
}

// refreshDocuments learns whether the OpenAPI documents of a server have changed. They are fetched when somebody asks for them.
func (b *Backend) refreshDocuments(ctx context.Context) error {
	got, err := b.fetch(ctx, "/openapi/v3", "", http.Header{"Accept": {"application/json"}}, maxRoot)
	if err != nil {
		return fmt.Errorf("OpenAPI: %w", err)
	}
	b.knownMu.Lock()
	d := b.known.documents
	discovery, _ := json.Marshal(b.known.discovery) // plain data can be marshaled
	b.knownMu.Unlock()
	d.hash, d.query, d.v3 = digestOf(discovery), "", false
	if got.code == http.StatusOK {
		d.query, d.v3 = b.documentQuery(got.body)
		d.hash += d.query
	}
	hash := string(b.uid) + " " + d.hash + " " + strconv.Itoa(d.failures)
	if hash != d.put {
		var v3 func() ([]byte, error)
		if d.v3 {
			v3 = b.counted(b.fetchV3)
		}
		if err := b.putDocuments(hash, v3, b.counted(b.fetchV2)); err != nil {
			b.owner.Log.Warn("failed to describe an aggregated API server in OpenAPI", "apiservice", b.name, "err", err)
		}
		d.put = hash
	}
	b.knownMu.Lock()
	defer b.knownMu.Unlock()
	d.failures = b.known.documents.failures
	b.known.documents = d
	return nil
}

// putDocuments has the documents served, unless the backend is not the one of the group version any more.
func (b *Backend) putDocuments(hash string, v3, v2 func() ([]byte, error)) error {
	b.putting.Lock()
	defer b.putting.Unlock()
	if b.retired {
		return nil
	}
	return b.owner.Host.PutDocuments(b.path(), hash, v3, v2)
}

// documentQuery returns the query of the URL of the group version's document, which has its hash, and whether there is that document.
func (b *Backend) documentQuery(root []byte) (query string, ok bool) {
	var list struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if json.Unmarshal(root, &list) != nil {
		return "", false
	}
	one, ok := list.Paths[b.path()]
	if !ok {
		return "", false
	}
	u, err := url.Parse(one.ServerRelativeURL)
	if err != nil {
		return "", false
	}
	return u.RawQuery, true
}

// counted returns a function that counts its failures.
func (b *Backend) counted(fetch func() ([]byte, error)) func() ([]byte, error) {
	return func() ([]byte, error) {
		document, err := fetch()
		if err != nil {
			b.knownMu.Lock()
			defer b.knownMu.Unlock()
			b.known.documents.failures++
			b.owner.Log.Warn("failed to fetch an OpenAPI document from an aggregated API server", "apiservice", b.name, "err", err)
		}
		return document, err
	}
}

func (b *Backend) fetchV3() ([]byte, error) {
	b.knownMu.Lock()
	query := b.known.documents.query
	b.knownMu.Unlock()
	return b.fetchDocument("/openapi/v3/"+b.path(), query)
}

// fetchV2 returns the part of a server's OpenAPI v2 document about the group version.
func (b *Backend) fetchV2() ([]byte, error) {
	document, err := b.fetchDocument("/openapi/v2", "")
	if err != nil {
		return nil, err
	}
	return ownPart(document, "/"+b.path()+"/")
}

func (b *Backend) fetchDocument(path, query string) ([]byte, error) {
	if !b.available.Load() {
		return nil, fmt.Errorf("service unavailable") // clients need not wait to learn that
	}
	got, err := b.fetch(b.owner.stopping, path, query, http.Header{"Accept": {"application/json"}}, maxDocument)
	switch {
	case err != nil:
		return nil, err
	case got.code != http.StatusOK:
		return nil, fmt.Errorf("the response code is %d", got.code)
	case !json.Valid(got.body):
		return nil, fmt.Errorf("it is not JSON")
	}
	return got.body, nil
}

// ownPart returns a document of OpenAPI v2 without the paths that do not begin with a prefix, and without anything but paths, definitions and parameters: a server
// describes what is routed to it, and nothing else.
func ownPart(document []byte, prefix string) ([]byte, error) {
	var parts struct {
		Paths       map[string]json.RawMessage `json:"paths,omitempty"`
		Definitions map[string]json.RawMessage `json:"definitions,omitempty"`
		Parameters  map[string]json.RawMessage `json:"parameters,omitempty"`
	}
	if err := json.Unmarshal(document, &parts); err != nil {
		return nil, err
	}
	for path := range parts.Paths {
		if !strings.HasPrefix(path, prefix) {
			delete(parts.Paths, path)
		}
	}
	return json.Marshal(parts)
}
