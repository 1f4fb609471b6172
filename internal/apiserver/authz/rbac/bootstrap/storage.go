package bootstrap

import rbacv1 "k8s.io/api/rbac/v1"

const localVolumes = skiffPrefix + "local-volume-provisioner-controller"

// storageRoles returns the role of the controller that has nodes create volumes on their disks. It calls their kubelets through nodes/proxy, as external-provisioner
// calls a driver through its socket.
func storageRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{role(localVolumes,
		allow("create", "core", "nodes/proxy"),
		allow("update", "core", "persistentvolumeclaims"),
		allow("update", "core", "persistentvolumeclaims/status"),
		allow("create delete update", "core", "persistentvolumes"),
		allow("create delete", "storage.k8s.io", "storageclasses"),
		allow("create update", "storage.k8s.io", "csidrivers"),
		writeEvents(),
	)}
}

func storageBindings() []*rbacv1.ClusterRoleBinding {
	return []*rbacv1.ClusterRoleBinding{bind(localVolumes, account("local-volume-provisioner-controller"))}
}
