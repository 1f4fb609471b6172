package codec

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Withheld stands in errors for what they do not show of an object that is a secret.
const Withheld = "<secret contents redacted>"

// Confidential reports whether objects of a kind are secrets. Errors usually show what is wrong with a body, as upstream's do; of these they
// must not, since errors end up in logs, and since who may patch an object may not be allowed to read it.
func Confidential(gvk schema.GroupVersionKind) bool {
	switch gvk.Kind {
	case "Secret":
		return gvk.Group == ""
	case "TokenReview", "TokenRequest":
		return gvk.Group == "authentication.k8s.io"
	}
	return false
}

// showing is what libraries' errors put before the values they show: those of YAML, of strategic merging and of server-side apply.
var showing = []string{"`", "anchor '", "map key: ", ", key: ", "patch type: ", "map: ", "list:", "element:", "identical: ", ", got "}

// Withhold cuts a library's error where it begins to show values.
func Withhold(text string) string {
	cut := -1
	for _, mark := range showing {
		if at := strings.Index(text, mark); at >= 0 && (cut < 0 || at+len(mark) < cut) {
			cut = at + len(mark)
		}
	}
	if cut < 0 {
		return text
	}
	return text[:cut] + Withheld
}
