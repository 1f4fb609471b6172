package front

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// HeaderOptions decide which headers for browsers and load balancers every response has.
type HeaderOptions struct {
	// AllowedOrigins are regular expressions of the origins whose scripts may use the API (CORS).
	AllowedOrigins []string
	// StrictTransport has the directives of the Strict-Transport-Security header; without any, the header is not sent.
	StrictTransport []string
	// GoAwayChance is the fraction of requests after which an HTTP/2 client is told to connect anew (GOAWAY), so that load spreads over servers.
	GoAwayChance float64
}

// headers sets the headers that every response has.
type headers struct {
	origins         []*regexp.Regexp
	strictTransport []string
	goAwayChance    float64
}

const maxGoAwayChance = 0.02

// Check returns what is wrong with the options, or nil.
func (o HeaderOptions) Check() error {
	_, err := newHeaders(o)
	return err
}

func newHeaders(o HeaderOptions) (*headers, error) {
	f := &headers{goAwayChance: o.GoAwayChance}
	if o.GoAwayChance < 0 || o.GoAwayChance > maxGoAwayChance {
		return nil, errors.New("--goaway-chance can not be less than 0 or greater than 0.02")
	}
	for _, origin := range o.AllowedOrigins {
		expression, err := regexp.Compile(origin)
		if err == nil && !anchored(origin) {
			err = errors.New("regular expression does not pin to start/end of host in the origin header")
		}
		if err != nil {
			return nil, fmt.Errorf("--cors-allowed-origins has an invalid regular expression: %w: it should match the whole host, such as '//example\\.com(:|$)' or '^https://example\\.com(:|$)'", err)
		}
		f.origins = append(f.origins, expression)
	}
	for _, directive := range o.StrictTransport {
		if directive != "includeSubDomains" && directive != "preload" && !maxAge.MatchString(directive) {
			return nil, errors.New("--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information")
		}
	}
	if len(o.StrictTransport) > 0 {
		f.strictTransport = []string{strings.Join(o.StrictTransport, "; ")}
	}
	return f, nil
}

var maxAge = regexp.MustCompile(`^max-age=[0-9]+$`)

// anchored reports whether an expression matches the start and the end of a host; one for example.com that does not would allow example.com.evil.org.
func anchored(origin string) bool {
	return (strings.Contains(origin, "^") || strings.Contains(origin, "//")) && (strings.Contains(origin, "$") || strings.Contains(origin, ":"))
}

// set sets the headers that every response has. It returns false if that has answered the request: a CORS preflight.
func (f *headers) set(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	h["Cache-Control"] = noCache
	if f.strictTransport != nil {
		h["Strict-Transport-Security"] = f.strictTransport
	}
	if f.goAwayChance > 0 && r.ProtoMajor == 2 && rand.Float64() < f.goAwayChance {
		h.Set("Connection", "close")
	}
	origin := r.Header.Get("Origin")
	if origin == "" || !slices.ContainsFunc(f.origins, func(e *regexp.Regexp) bool { return e.MatchString(origin) }) {
		return true
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE, PATCH")
	h.Set("Access-Control-Allow-Headers", "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since")
	h.Set("Access-Control-Expose-Headers", "Date")
	h.Set("Access-Control-Allow-Credentials", "true")
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return false
	}
	return true
}

var noCache = []string{"no-cache, private"}
