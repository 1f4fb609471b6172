package rbac

import (
	"k8s.io/apimachinery/pkg/api/validate/content"

	"skiff/internal/catalog"
)

// Resources returns the resources of the group.
func Resources() []catalog.Declaration {
	return []catalog.Declaration{ClusterRoleBinding, ClusterRole, RoleBinding, Role}
}

const group = "rbac.authorization.k8s.io"

// anyName allows every valid path segment, such as system:node.
func anyName(name string, _ bool) []string { return content.IsPathSegmentName(name) }
