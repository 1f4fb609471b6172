package authn

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
)

// The users and groups every server knows.
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

// What authenticators tell about a credential in a user's extra.
const (
	ExtraCredentialID = "authentication.kubernetes.io/credential-id"
	ExtraPodName      = "authentication.kubernetes.io/pod-name"
	ExtraPodUID       = "authentication.kubernetes.io/pod-uid"
	ExtraNodeName     = "authentication.kubernetes.io/node-name"
	ExtraNodeUID      = "authentication.kubernetes.io/node-uid"
)

// AnonymousUser is who sends a request without any credential.
func AnonymousUser() *User {
	return &User{Username: Anonymous, Groups: []string{SystemUnauthenticated}}
}

// Authenticated returns the user in the group of all who are known, unless it is plain that the user is not.
func Authenticated(user *User) *User {
	if user.Username == Anonymous || slices.Contains(user.Groups, SystemAuthenticated) || slices.Contains(user.Groups, SystemUnauthenticated) {
		return user
	}
	known := *user
	known.Groups = append(slices.Clip(user.Groups), SystemAuthenticated)
	return &known
}

// NodeUser is the name of a node's user.
func NodeUser(node string) string { return nodePrefix + node }

// NodeOf returns the node whose user's name it is.
func NodeOf(username string) (node string, ok bool) {
	node, ok = strings.CutPrefix(username, nodePrefix)
	if !ok || len(validation.NameIsDNSSubdomain(node, false)) > 0 {
		return "", false
	}
	return node, true
}

// ServiceAccountUser is the name of a service account's user.
func ServiceAccountUser(namespace, name string) string {
	return serviceAccountPrefix + namespace + ":" + name
}

// ServiceAccountGroups are the groups of a namespace's service accounts.
func ServiceAccountGroups(namespace string) []string {
	return []string{allServiceAccounts, serviceAccountsPrefix + namespace}
}

// ServiceAccountOf returns the service account whose user's name it is.
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

// Admin is the cluster's administrator.
func Admin() *User {
	return &User{Username: "kubernetes-admin", Groups: []string{SystemMasters, SystemAuthenticated}}
}
