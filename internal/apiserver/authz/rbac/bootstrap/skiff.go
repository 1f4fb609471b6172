package bootstrap

import rbacv1 "k8s.io/api/rbac/v1"

// ownPrefix begins the names of what a fresh cluster has beyond upstream's.
const ownPrefix = "skiff:"

// skiffBindings let the API server into kubelets, which upstream leaves to who sets a cluster up.
func skiffBindings() []*rbacv1.ClusterRoleBinding {
	kubeletClient := bind("system:kubelet-api-admin", user("kube-apiserver-kubelet-client"))
	kubeletClient.Name = ownPrefix + "kubelet-client"
	return []*rbacv1.ClusterRoleBinding{kubeletClient}
}
