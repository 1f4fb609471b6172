package bootstrap

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"skiff/internal/apiserver/authn"
)

// skiffPrefix begins the names of roles and bindings that upstream does not have; joinPrefix those that kubeadm creates so that machines can join.
const (
	skiffPrefix = "skiff:"
	joinPrefix  = "kubeadm:"
)

// Own reports whether a default role or binding of that name is one that upstream's API server does not have.
func Own(name string) bool {
	return strings.HasPrefix(name, skiffPrefix) || strings.HasPrefix(name, joinPrefix)
}

// joiningNodes is the group of machines that join with a bootstrap token.
const joiningNodes = "system:bootstrappers:kubeadm:default-node-token"

// skiffBindings returns the bindings that upstream leaves to installers: the API server may call kubelets, and machines with a token may join.
func skiffBindings() []*rbacv1.ClusterRoleBinding {
	const requests = "system:certificates.k8s.io:certificatesigningrequests:"
	named := func(name string, b *rbacv1.ClusterRoleBinding) *rbacv1.ClusterRoleBinding {
		b.Name = name
		return b
	}
	return []*rbacv1.ClusterRoleBinding{
		named(skiffPrefix+"kubelet-client", bind("system:kubelet-api-admin", user("kube-apiserver-kubelet-client"))),
		bind(servingApprover, account("kubelet-serving-approving-controller")),
		bind(nodeKeys, account("certificate-controller")),
		bind(accountTokens, account("serviceaccount-token-controller")),
		bind(tunnels, account("skiff-tunnels")),
		named(joinPrefix+"kubelet-bootstrap", bind("system:node-bootstrapper", group(joiningNodes))),
		named(joinPrefix+"node-autoapprove-bootstrap", bind(requests+"nodeclient", group(joiningNodes))),
		named(joinPrefix+"node-autoapprove-certificate-rotation", bind(requests+"selfnodeclient", group("system:nodes"))),
	}
}

const (
	clusterConfig   = skiffPrefix + "cluster-config"
	servingApprover = skiffPrefix + "kubelet-serving-approving-controller"
	publisher       = skiffPrefix + "cluster-info-controller"
	nodeKeys        = skiffPrefix + "node-client-keys"
	accountTokens   = skiffPrefix + "serviceaccount-token-controller"
	tokenUses       = skiffPrefix + "token-uses"
	tunnels         = skiffPrefix + "tunnels"
	clusterInfo     = joinPrefix + "bootstrap-signer-clusterinfo"
)

// skiffClusterRoles returns the roles of the controller that approves serving certificates of kubelets, of those that record and check the keys of nodes,
// of the one that writes tokens into Secrets, which upstream runs as kube-controller-manager, and of the server, which looks up where the tunnels of nodes lead.
func skiffClusterRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		role(servingApprover,
			allow("update", "certificates.k8s.io", "certificatesigningrequests/approval"),
			allow("approve", "certificates.k8s.io", "signers", "kubernetes.io/kubelet-serving"),
		),
		role(nodeKeys, allow("get patch", "core", "nodes")),
		role(accountTokens, allow("delete update", "core", "secrets"), allow("get update", "core", "serviceaccounts")),
		role(tunnels, allow("list", "core", "nodes")),
	}
}

// skiffRoles returns the roles to read the cluster's configuration (nodes) and its CA (everybody), to write both, and to record the uses of tokens.
func skiffRoles() []*rbacv1.Role {
	return []*rbacv1.Role{
		namespaced(system, clusterConfig, allow("get", "core", "configmaps", "skiff-config")),
		namespaced(public, clusterInfo, allow("get", "core", "configmaps", "cluster-info")),
		namespaced(system, publisher, allow("create", "core", "configmaps"), allow("update", "core", "configmaps", "skiff-config")),
		namespaced(system, tokenUses, allow("update", "core", "secrets")),
		namespaced(public, publisher, allow("create", "core", "configmaps"), allow("update", "core", "configmaps", "cluster-info")),
	}
}

func skiffRoleBindings() []*rbacv1.RoleBinding {
	return []*rbacv1.RoleBinding{
		bindIn(system, clusterConfig, clusterConfig, group("system:nodes"), group(joiningNodes)),
		bindIn(public, clusterInfo, clusterInfo, user(authn.Anonymous)),
		bindIn(system, publisher, publisher, account("cluster-info-controller")),
		bindIn(system, tokenUses, tokenUses, account("certificate-controller")),
		bindIn(public, publisher, publisher, account("cluster-info-controller")),
	}
}
