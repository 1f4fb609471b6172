package bootstrap

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"skiff/internal/apiserver/authn"
)

// Upstream knows nothing of journeys, and has its servers let into kubelets by others: these are the only objects a fresh cluster has beyond its own.

// skiffRoles are who may hand in what components did, and who may ask for the journey of an object: anybody, for that goes by who may get the
// object.
func skiffRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		role(spanWriter, allowPaths("post", "/skiff/v1/spans")),
		role(journeyReader, allowPaths("get", "/skiff/v1/journey")),
	}
}

func skiffBindings() []*rbacv1.ClusterRoleBinding {
	// Upstream's servers leave it to who sets them up to let them into kubelets.
	kubeletClient := bind("system:kubelet-api-admin", user("kube-apiserver-kubelet-client"))
	kubeletClient.Name = ownPrefix + "kubelet-client"
	return []*rbacv1.ClusterRoleBinding{
		kubeletClient,
		bind(spanWriter, group(authn.SystemNodes), group("system:serviceaccounts:kube-system"), user(controllerManager), user(scheduler), user(proxy)),
		bind(journeyReader, group(authn.SystemAuthenticated)),
	}
}

const (
	ownPrefix     = "skiff:"
	spanWriter    = ownPrefix + "span-writer"
	journeyReader = ownPrefix + "journey-reader"
)
