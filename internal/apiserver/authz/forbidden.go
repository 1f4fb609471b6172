package authz

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NoHTML returns a text with HTML escaped, so that no browser renders an error as a page.
func NoHTML(text string) string { return noHTML.Replace(text) }

var noHTML = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// Forbidden returns the Forbidden error for a request that is not allowed.
func Forbidden(a *Attributes, reason string) error {
	text := fmt.Sprintf("User %q cannot %s path %q", a.User.Username, a.Verb, a.Path)
	if a.Resource {
		plural, where := a.Plural, "at the cluster scope"
		if a.Subresource != "" {
			plural += "/" + a.Subresource
		}
		if a.Namespace != "" {
			where = fmt.Sprintf("in the namespace %q", a.Namespace)
		}
		text = fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", a.User.Username, a.Verb, plural, a.Group, where)
	}
	text = NoHTML(text)
	if reason != "" {
		text += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Plural}, a.Name, errors.New(text))
}
