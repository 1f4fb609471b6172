package bootstrap

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/authn"
)

// Policy is a set of roles and bindings.
type Policy struct {
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
}

// Default returns a new copy of the roles and bindings that every cluster has.
func Default() Policy {
	p := Policy{ClusterRoleBindings: clusterBindings(), Roles: systemRoles(), RoleBindings: systemBindings()}
	p.ClusterRoles = append(p.ClusterRoles, userRoles()...)
	p.ClusterRoles = append(p.ClusterRoles, basicRoles()...)
	p.ClusterRoles = append(p.ClusterRoles, role("system:node", NodeRules()...))
	p.ClusterRoles = append(p.ClusterRoles, componentRoles()...)
	p.ClusterRoles = append(p.ClusterRoles, skiffClusterRoles()...)
	p.ClusterRoleBindings = append(p.ClusterRoleBindings, skiffBindings()...)
	p.ClusterRoles = append(p.ClusterRoles, networkRoles()...)
	p.ClusterRoleBindings = append(p.ClusterRoleBindings, networkBindings()...)
	p.ClusterRoles = append(p.ClusterRoles, storageRoles()...)
	p.ClusterRoleBindings = append(p.ClusterRoleBindings, storageBindings()...)
	p.Roles = append(p.Roles, skiffRoles()...)
	p.RoleBindings = append(p.RoleBindings, skiffRoleBindings()...)
	for _, r := range controllerRoles() {
		p.ClusterRoles = append(p.ClusterRoles, r)
		p.ClusterRoleBindings = append(p.ClusterRoleBindings, bind(r.Name, account(strings.TrimPrefix(r.Name, controllerPrefix))))
	}
	return p
}

// The users and groups of the system.
const (
	controllerManager  = "system:kube-controller-manager"
	scheduler          = "system:kube-scheduler"
	proxy              = "system:kube-proxy"
	monitoring         = "system:monitoring"
	allServiceAccounts = "system:serviceaccounts"
)

func clusterBindings() []*rbacv1.ClusterRoleBinding {
	return []*rbacv1.ClusterRoleBinding{
		bind("cluster-admin", group(authn.SystemMasters)),
		bind("system:monitoring", group(monitoring)),
		bind("system:discovery", group(authn.SystemAuthenticated)),
		bind("system:basic-user", group(authn.SystemAuthenticated)),
		bind(publicInfo, group(authn.SystemAuthenticated), group(authn.SystemUnauthenticated)),
		bind("system:service-account-issuer-discovery", group(allServiceAccounts)),
		bind("system:cluster-trust-bundle-discovery", group(allServiceAccounts)),
		bind("system:kube-controller-manager", user(controllerManager)),
		bind("system:kube-scheduler", user(scheduler)),
		bind("system:volume-scheduler", user(scheduler)),
		bind("system:node-proxier", user(proxy)),
		bind("system:kube-dns", account("kube-dns")),
		bind("system:node"), // no subjects: the node authorizer applies its rules to each kubelet
	}
}

const (
	authenticationReader  = "extension-apiserver-authentication-reader"
	managerLeader         = "system::leader-locking-kube-controller-manager"
	schedulerLeader       = "system::leader-locking-kube-scheduler"
	bootstrapSigner       = controllerPrefix + "bootstrap-signer"
	cloudProvider         = controllerPrefix + "cloud-provider"
	tokenCleaner          = controllerPrefix + "token-cleaner"
	leading               = read + " create update"
	coordination          = "coordination.k8s.io"
	public, system        = metav1.NamespacePublic, metav1.NamespaceSystem
	publicInfo, discovery = "system:public-info-viewer", "system:discovery"
)

func systemRoles() []*rbacv1.Role {
	return []*rbacv1.Role{
		// for aggregated API servers: the CAs and headers of trusted front proxies
		namespaced(system, authenticationReader, allow(read, "core", "configmaps", "extension-apiserver-authentication")),
		namespaced(system, managerLeader, allow(leading, coordination, "leases"), allow(leading, coordination, "leasecandidates")),
		namespaced(system, schedulerLeader, allow(leading, coordination, "leases"), allow(leading, coordination, "leasecandidates")),
		namespaced(system, bootstrapSigner, allow(read, "core", "secrets")),
		namespaced(public, bootstrapSigner, allow(read, "core", "configmaps"), allow("update", "core", "configmaps", "cluster-info"), writeEvents()),
		namespaced(system, cloudProvider, allow("create get list watch", "core", "configmaps")),
		namespaced(system, tokenCleaner, allow("get list watch delete", "core", "secrets"), writeEvents()),
	}
}

func systemBindings() []*rbacv1.RoleBinding {
	return []*rbacv1.RoleBinding{
		bindIn(system, "system::"+authenticationReader, authenticationReader, user(controllerManager), user(scheduler)),
		bindIn(system, managerLeader, managerLeader, user(controllerManager), account("kube-controller-manager"), account("leader-election-controller")),
		bindIn(system, schedulerLeader, schedulerLeader, user(scheduler), account("kube-scheduler")),
		bindIn(system, bootstrapSigner, bootstrapSigner, account("bootstrap-signer")),
		bindIn(public, bootstrapSigner, bootstrapSigner, account("bootstrap-signer")),
		bindIn(system, cloudProvider, cloudProvider, account("cloud-provider")),
		bindIn(system, tokenCleaner, tokenCleaner, account("token-cleaner")),
	}
}
