package codec

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Withheld replaces values of secret objects in errors.
const Withheld = "<secret contents redacted>"

// Confidential reports whether objects of a kind are secret. Errors show parts of other bodies, as upstream's do; they must not show parts of
// these, since errors end up in logs, and since a user who may patch an object may not be allowed to read it.
func Confidential(gvk schema.GroupVersionKind) bool {
	switch gvk.Kind {
	case "Secret":
		return gvk.Group == ""
	case "TokenReview", "TokenRequest":
		return gvk.Group == "authentication.k8s.io"
	}
	return false
}

// valueMarks are the texts that precede values in the errors of the libraries for YAML, strategic merge and server-side apply.
var valueMarks = []string{"`", "anchor '", "map key: ", ", key: ", "patch type: ", "map: ", "list:", "element:", "identical: ", ", got "}

// Withhold cuts a library's error text before the first value it shows.
func Withhold(text string) string {
	cut := -1
	for _, mark := range valueMarks {
		if at := strings.Index(text, mark); at >= 0 && (cut < 0 || at+len(mark) < cut) {
			cut = at + len(mark)
		}
	}
	if cut < 0 {
		return text
	}
	return text[:cut] + Withheld
}
