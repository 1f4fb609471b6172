package bootstrap

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"skiff/internal/apiserver/authn"
)

// ownPrefix begins the names of what a fresh cluster has beyond upstream's; joinPrefix those that kubeadm gives a cluster so that machines can join.
const (
	ownPrefix  = "skiff:"
	joinPrefix = "kubeadm:"
)

// Own reports whether a role or binding of that name is one that a fresh cluster has beyond upstream's.
func Own(name string) bool {
	return strings.HasPrefix(name, ownPrefix) || strings.HasPrefix(name, joinPrefix)
}

// joining are the machines that come with a token made to join with.
const joining = "system:bootstrappers:kubeadm:default-node-token"

// skiffBindings are what upstream leaves to who sets a cluster up: they let the API server into kubelets, and machines with a token join.
func skiffBindings() []*rbacv1.ClusterRoleBinding {
	const requests = "system:certificates.k8s.io:certificatesigningrequests:"
	named := func(name string, b *rbacv1.ClusterRoleBinding) *rbacv1.ClusterRoleBinding {
		b.Name = name
		return b
	}
	return []*rbacv1.ClusterRoleBinding{
		named(ownPrefix+"kubelet-client", bind("system:kubelet-api-admin", user("kube-apiserver-kubelet-client"))),
		bind(servingApprover, account("kubelet-serving-approving-controller")),
		bind(nodeKeys, account("certificate-controller")),
		bind(tunnels, account("skiff-tunnels")),
		named(joinPrefix+"kubelet-bootstrap", bind("system:node-bootstrapper", group(joining))),
		named(joinPrefix+"node-autoapprove-bootstrap", bind(requests+"nodeclient", group(joining))),
		named(joinPrefix+"node-autoapprove-certificate-rotation", bind(requests+"selfnodeclient", group("system:nodes"))),
	}
}

const (
	clusterConfig   = ownPrefix + "cluster-config"
	servingApprover = ownPrefix + "kubelet-serving-approving-controller"
	publisher       = ownPrefix + "cluster-info-controller"
	nodeKeys        = ownPrefix + "node-client-keys"
	tokenUses       = ownPrefix + "token-uses"
	tunnels         = ownPrefix + "tunnels"
	clusterInfo     = joinPrefix + "bootstrap-signer-clusterinfo"
)

// skiffClusterRoles are for the loop that approves what kubelets serve with, for those that record the keys of nodes and check them, and for the server, which looks up where the tunnels of nodes lead.
func skiffClusterRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		role(servingApprover,
			allow("update", "certificates.k8s.io", "certificatesigningrequests/approval"),
			allow("approve", "certificates.k8s.io", "signers", "kubernetes.io/kubelet-serving"),
		),
		role(nodeKeys, allow("get patch", "core", "nodes")),
		role(tunnels, allow("list", "core", "nodes")),
	}
}

// skiffRoles let nodes read how the cluster is laid out, and everybody whom to trust, a loop write it, and another record the uses of tokens.
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
		bindIn(system, clusterConfig, clusterConfig, group("system:nodes"), group(joining)),
		bindIn(public, clusterInfo, clusterInfo, user(authn.Anonymous)),
		bindIn(system, publisher, publisher, account("cluster-info-controller")),
		bindIn(system, tokenUses, tokenUses, account("certificate-controller")),
		bindIn(public, publisher, publisher, account("cluster-info-controller")),
	}
}
