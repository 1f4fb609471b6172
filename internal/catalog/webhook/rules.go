package webhook

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"skiff/internal/catalog/check"
)

// URL validates the field url of a part.
func URL(p *check.Part, text string) {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(text)
	if err != nil {
		p.Required("url", "url must be a valid URL: "+err.Error()+form)
		return
	}
	if u.Scheme != "https" {
		p.Invalid("url", u.Scheme, "'https' is the only allowed URL scheme"+form)
	}
	if u.Host == "" {
		p.Invalid("url", u.Host, "host must be specified"+form)
	}
	if u.User != nil {
		p.Invalid("url", u.User.String(), "user information is not permitted in the URL")
	}
	if u.Fragment != "" {
		p.Invalid("url", u.Fragment, "fragments are not permitted in the URL")
	}
	if u.RawQuery != "" {
		p.Invalid("url", u.RawQuery, "query parameters are not permitted in the URL")
	}
}

// Service validates a reference to a service, at its part.
func Service(p *check.Part, name, namespace string, port int32, path *string) {
	// Upstream checks the namespace in place of the name here, and clients see that.
	p.Present("name", namespace != "", "")
	p.Present("namespace", name != "", "")
	if msgs := validation.IsValidPortNum(int(port)); len(msgs) > 0 {
		p.Invalid("port", port, "port is not valid: "+strings.Join(msgs, ", "))
	}
	if path != nil {
		servicePath(p, *path)
	}
}

func servicePath(p *check.Part, path string) {
	switch path {
	case "", "/":
		return
	case "//":
		p.Invalid("path", path, "segment[0] may not be empty")
		return
	}
	if path[0] != '/' {
		p.Invalid("path", path, "must start with a '/'")
	}
	i := 0
	for segment := range strings.SplitSeq(strings.TrimSuffix(path[1:], "/"), "/") {
		if segment == "" {
			p.Invalid("path", path, fmt.Sprintf("segment[%d] may not be empty", i))
		} else {
			for _, msg := range validation.IsDNS1123Subdomain(segment) {
				p.Invalid("path", path, fmt.Sprintf("segment[%d]: %s", i, msg))
			}
		}
		i++
	}
}

// CABundleError returns what is wrong with the certificates that a webhook's server is verified with. An empty bundle is valid.
func CABundleError(bundle []byte) error {
	if len(bundle) == 0 || x509.NewCertPool().AppendCertsFromPEM(bundle) {
		return nil
	}
	return fmt.Errorf("unable to load root certificates: %w", certificateError(bundle))
}

// certificateError returns why a bundle has no certificate.
func certificateError(bundle []byte) error {
	for rest := bundle; len(rest) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return errors.New("unable to parse bytes as PEM block")
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("failed to parse certificate: %w", err)
		}
	}
	return errors.New("no valid certificate authority data seen")
}
