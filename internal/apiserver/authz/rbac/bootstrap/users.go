package bootstrap

import rbacv1 "k8s.io/api/rbac/v1"

// userRoles returns the roles for people: cluster-admin, and admin, edit and view in a namespace. Each of the three includes the next, and an
// added API extends them with roles that have the labels to be aggregated.
func userRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		role("cluster-admin",
			allow("*", "*", "*"),
			allowPaths("*", "*"),
		),
		aggregating("admin"),
		joins("admin", aggregating("edit")),
		joins("edit", aggregating("view")),
		joins("admin", role("system:aggregate-to-admin",
			allow("create", "authorization.k8s.io", "localsubjectaccessreviews"),
			allow(readWrite, "rbac.authorization.k8s.io", "rolebindings roles"),
		)),
		joins("edit", role("system:aggregate-to-edit",
			allow(read, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
			allow("impersonate", "core", "serviceaccounts"),
			allow(write, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
			allow("create", "core", "pods/eviction"),
			allow(write, "core", "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets serviceaccounts "+
				"services services/proxy"),
			allow("create", "core", "serviceaccounts/token"),
			allow(write, "core events.k8s.io", "events"),
			allow(write, "apps", "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets "+
				"statefulsets/scale"),
			allow(write, "autoscaling", "horizontalpodautoscalers"),
			allow(write, "batch", "cronjobs jobs"),
			allow(write, "extensions", "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets "+
				"replicasets/scale replicationcontrollers/scale"),
			allow(write, "policy", "poddisruptionbudgets"),
			allow(write, "networking.k8s.io", "ingresses networkpolicies"),
			allow(readWrite, "coordination.k8s.io", "leases"),
			allow(write, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
		)),
		joins("view", role("system:aggregate-to-view",
			allow(read, "core", "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers "+
				"replicationcontrollers/scale serviceaccounts services services/status"),
			allow(read, "core", "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status resourcequotas "+
				"resourcequotas/status"),
			allow(read, "core", "namespaces"),
			allow(read, "core events.k8s.io", "events"),
			allow(read, "discovery.k8s.io", "endpointslices"),
			allow(read, "apps", "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status replicasets "+
				"replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status"),
			allow(read, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
			allow(read, "batch", "cronjobs cronjobs/status jobs jobs/status"),
			allow(read, "extensions", "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status "+
				"networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale"),
			allow(read, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
			allow(read, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
			allow(read, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
		)),
	}
}

// MetricsReader returns the role that metrics-server brings along, by which those who may view a namespace may also see what its pods use.
func MetricsReader() *rbacv1.ClusterRole {
	r := joins("admin", joins("edit", joins("view", role("system:aggregated-metrics-reader", allow(read, "metrics.k8s.io", "nodes pods")))))
	delete(r.Labels, bootstrapping)
	r.Annotations = nil
	return r
}

// basicRoles returns the roles that are bound to all authenticated and unauthenticated users.
func basicRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		role("system:discovery", allowPaths("get", "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/")),
		// reviews of one's own permissions and identity
		role("system:basic-user",
			allow("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
			allow("create", "authentication.k8s.io", "selfsubjectreviews"),
		),
		role("system:public-info-viewer", allowPaths("get", "/healthz /livez /readyz /version /version/")),
		role("system:monitoring",
			allowPaths("get", "/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz"),
			allow("get", "core", "nodes/metrics"),
		),
		// with and without the trailing slash of old clients
		role("system:service-account-issuer-discovery",
			allowPaths("get", "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/"),
		),
		role("system:cluster-trust-bundle-discovery", allow(read, "certificates.k8s.io", "clustertrustbundles")),
	}
}
