package impersonation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
)

// mode is a mode of impersonation. The one without a name is unconstrained.
type mode struct {
	name    string
	applies func(wanted, requestor *authn.User) bool
}

const associatedNode = "associated-node"

// modes are tried in this order; the first that applies and is allowed wins.
var modes = []mode{
	// A service account may be allowed to act as the node its Pod runs on.
	{associatedNode, func(wanted, requestor *authn.User) bool {
		node, ok := authn.NodeOf(wanted.Username)
		_, _, isAccount := authn.ServiceAccountOf(requestor.Username)
		on := requestor.Extra[authn.ExtraNodeName]
		return ok && onlyName(wanted) && isAccount && len(on) == 1 && on[0] == node
	}},
	{"arbitrary-node", func(wanted, _ *authn.User) bool { return onlyName(wanted) && isNode(wanted) }},
	{"serviceaccount", func(wanted, _ *authn.User) bool { return onlyName(wanted) && isServiceAccount(wanted) }},
	{"user-info", func(wanted, _ *authn.User) bool { return !isNode(wanted) && !isServiceAccount(wanted) }},
	{"", func(_, _ *authn.User) bool { return true }},
}

func (m mode) constrained() bool { return m.name != "" }

// constraint returns the verb of a constrained mode, else the empty string.
func (m mode) constraint() string {
	if !m.constrained() {
		return ""
	}
	return m.verb()
}

func (m mode) verb() string {
	if !m.constrained() {
		return "impersonate"
	}
	return "impersonate:" + m.name
}

func onlyName(u *authn.User) bool { return u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0 }

func isNode(u *authn.User) bool {
	_, ok := authn.NodeOf(u.Username)
	return ok
}

func isServiceAccount(u *authn.User) bool {
	_, _, ok := authn.ServiceAccountOf(u.Username)
	return ok
}

// attempt is one attempt to impersonate in one mode.
type attempt struct {
	ctx        context.Context
	authorizer authz.Authorizer
	mode       mode
	wanted     *authn.User
	request    *authz.Attributes
}

// run authorizes everything that the mode requires, and returns the user with the implied groups added.
func (t *attempt) run() (*authn.User, error) {
	if t.mode.constrained() {
		on := *t.request
		on.Verb = "impersonate-on:" + t.mode.name + ":" + on.Verb
		if err := t.authorize(&on); err != nil {
			return nil, err
		}
	}
	user := *t.wanted
	for _, allow := range []func(*authn.User) error{t.allowName, t.allowUID, t.allowGroups, t.allowExtra} {
		if err := allow(&user); err != nil {
			return nil, err
		}
	}
	switch {
	case user.Username == authn.Anonymous:
		withGroup(&user, authn.SystemUnauthenticated)
	case !slices.Contains(user.Groups, authn.SystemUnauthenticated):
		withGroup(&user, authn.SystemAuthenticated)
	}
	return &user, nil
}

func withGroup(u *authn.User, group string) {
	if !slices.Contains(u.Groups, group) {
		u.Groups = append(slices.Clip(u.Groups), group)
	}
}

func (t *attempt) allowName(user *authn.User) error {
	a := t.attributes(t.group(), "users", t.wanted.Username)
	if node, ok := authn.NodeOf(t.wanted.Username); ok && t.mode.constrained() {
		a.Plural, a.Name = "nodes", node
		user.Groups = []string{authn.SystemNodes}
	}
	if namespace, name, ok := authn.ServiceAccountOf(t.wanted.Username); ok {
		a.Plural, a.Namespace, a.Name = "serviceaccounts", namespace, name
		if len(t.wanted.Groups) == 0 {
			user.Groups = authn.ServiceAccountGroups(namespace)
		}
	}
	return t.authorize(a)
}

func (t *attempt) allowUID(*authn.User) error {
	if t.wanted.UID == "" {
		return nil
	}
	return t.authorize(t.attributes(authenticationv1.GroupName, "uids", t.wanted.UID))
}

// wildcardThreshold is the number of values from which a constrained mode tries a wildcard before each value.
const wildcardThreshold = 4

func (t *attempt) allowGroups(*authn.User) error {
	groups := t.wanted.Groups
	a := t.attributes(t.group(), "groups", "")
	if t.mode.constrained() {
		if slices.Contains(groups, "") {
			return authz.Forbidden(a, "impersonating the empty string group is not allowed")
		}
		if slices.Contains(groups, authn.SystemMasters) {
			a.Name = authn.SystemMasters
			return authz.Forbidden(a, "impersonating the system:masters group is not allowed")
		}
		if len(groups) >= wildcardThreshold {
			a.Name = "*"
			if t.authorize(a) == nil {
				return nil
			}
		}
	}
	for _, a.Name = range groups {
		if err := t.authorize(a); err != nil {
			return err
		}
	}
	return nil
}

func (t *attempt) allowExtra(*authn.User) error {
	extra := t.wanted.Extra
	a := t.attributes(authenticationv1.GroupName, "userextras", "")
	values := 0
	for _, v := range extra {
		values += len(v)
	}
	if t.mode.constrained() {
		if problem := checkExtra(extra); problem != "" {
			return authz.Forbidden(a, problem)
		}
		if values >= wildcardThreshold {
			a.Subresource, a.Name = "*", "*"
			if t.authorize(a) == nil {
				return nil
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		a.Subresource = key
		for _, a.Name = range extra[key] {
			if err := t.authorize(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkExtra returns why no user may impersonate the extra, empty if it is allowed.
func checkExtra(extra map[string]authenticationv1.ExtraValue) string {
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		values := extra[key]
		if key == "" {
			return "impersonating the empty string key in extra is not allowed"
		}
		if err := validation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key).ToAggregate(); err != nil {
			return fmt.Sprintf("impersonating an invalid key in extra is not allowed: %v", err)
		}
		if key != strings.ToLower(key) {
			return fmt.Sprintf("impersonating a non-lowercase key in extra is not allowed: %q", key)
		}
		if slices.Contains(values, "") {
			return "impersonating the empty string value in extra is not allowed"
		}
	}
	return ""
}

// group returns the API group of users and groups.
func (t *attempt) group() string {
	if t.mode.constrained() {
		return authenticationv1.GroupName
	}
	return ""
}

func (t *attempt) attributes(group, plural, name string) *authz.Attributes {
	return &authz.Attributes{User: t.request.User, Verb: t.mode.verb(), Resource: true, Group: group, Version: "v1", Plural: plural, Name: name}
}

// authorize returns a Forbidden error unless the authorizer allows the attributes.
func (t *attempt) authorize(a *authz.Attributes) error {
	if t.mode.name == associatedNode {
		a = asAssociated(a, t.mode)
	}
	decision, reason, err := t.authorizer.Authorize(t.ctx, a)
	if decision == authz.Allow {
		return nil
	}
	if err != nil && apierrors.IsForbidden(err) {
		return err
	}
	if err != nil {
		reason = strings.TrimSuffix(err.Error()+": "+reason, ": ")
	}
	return authz.Forbidden(a, reason)
}

// asAssociated returns attributes that are the same on every node: the rule is about whichever node the service account's pod runs on.
func asAssociated(a *authz.Attributes, m mode) *authz.Attributes {
	asked, user := *a, *a.User
	user.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/associated-node-keys": slices.Sorted(maps.Keys(a.User.Extra))}
	asked.User = &user
	if a.Verb == m.verb() {
		asked.Name = "*"
	}
	return &asked
}
