package authn

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
)

// The well-known users and groups.
const (
	Anonymous             = "system:anonymous"
	SystemMasters         = "system:masters"
	SystemAuthenticated   = "system:authenticated"
	SystemUnauthenticated = "system:unauthenticated"
	SystemNodes           = "system:nodes"

	nodePrefix            = "system:node:"
	serviceAccountPrefix  = "system:serviceaccount:"
	allServiceAccounts    = "system:serviceaccounts"
	serviceAccountsPrefix = "system:serviceaccounts:"
)

// The keys of a user's extra in which authenticators describe the credential.
const (
	ExtraCredentialID = "authentication.kubernetes.io/credential-id"
	ExtraPodName      = "authentication.kubernetes.io/pod-name"
	ExtraPodUID       = "authentication.kubernetes.io/pod-uid"
	ExtraNodeName     = "authentication.kubernetes.io/node-name"
	ExtraNodeUID      = "authentication.kubernetes.io/node-uid"
)

// AnonymousUser returns the user of requests without a credential.
func AnonymousUser() *User {
	return &User{Username: Anonymous, Groups: []string{SystemUnauthenticated}}
}

// Authenticated returns the user with the group system:authenticated added, unless the user is anonymous or unauthenticated.
func Authenticated(user *User) *User {
	if user.Username == Anonymous || slices.Contains(user.Groups, SystemAuthenticated) || slices.Contains(user.Groups, SystemUnauthenticated) {
		return user
	}
	authenticated := *user
	authenticated.Groups = append(slices.Clip(user.Groups), SystemAuthenticated)
	return &authenticated
}

// NodeUser returns the username of a node.
func NodeUser(node string) string { return nodePrefix + node }

// NodeOf returns the node that the username belongs to.
func NodeOf(username string) (node string, ok bool) {
	node, ok = strings.CutPrefix(username, nodePrefix)
	if !ok || len(validation.NameIsDNSSubdomain(node, false)) > 0 {
		return "", false
	}
	return node, true
}

// ServiceAccountUser returns the username of a service account.
func ServiceAccountUser(namespace, name string) string {
	return serviceAccountPrefix + namespace + ":" + name
}

// ServiceAccountGroups returns the groups of a namespace's service accounts.
func ServiceAccountGroups(namespace string) []string {
	return []string{allServiceAccounts, serviceAccountsPrefix + namespace}
}

// ServiceAccountOf returns the service account that the username belongs to.
func ServiceAccountOf(username string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(username, serviceAccountPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	if !ok || len(validation.ValidateNamespaceName(namespace, false)) > 0 || len(validation.ValidateServiceAccountName(name, false)) > 0 {
		return "", "", false
	}
	return namespace, name, true
}

// Admin returns the user of the cluster's administrator.
func Admin() *User {
	return &User{Username: "kubernetes-admin", Groups: []string{SystemMasters, SystemAuthenticated}}
}
