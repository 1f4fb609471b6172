package bootstrap

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"skiff/internal/apiserver/authn"
)

const (
	clusterDNS  = skiffPrefix + "cluster-dns-controller"
	nodeNetwork = skiffPrefix + "node-network"
)

// networkRoles returns the roles of the controller of the cluster DNS Service, which upstream leaves to an add-on, and of the network components of
// nodes: they watch Services and EndpointSlices, as kube-proxy does, Nodes, as Flannel does, and namespaces, as CoreDNS does.
func networkRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		role(clusterDNS,
			allow("create delete get update", "core", "services"),
			allow("update", "core", "services/finalizers"),
			allow("create delete get update", "discovery.k8s.io", "endpointslices"),
			writeEvents(),
		),
		role(nodeNetwork,
			allow("list watch", "core", "namespaces nodes services"),
			allow("list watch", "discovery.k8s.io", "endpointslices"),
			allow("list watch", "networking.k8s.io", "servicecidrs"),
		),
	}
}

func networkBindings() []*rbacv1.ClusterRoleBinding {
	return []*rbacv1.ClusterRoleBinding{bind(clusterDNS, account("cluster-dns-controller")), bind(nodeNetwork, group(authn.SystemNodes))}
}
