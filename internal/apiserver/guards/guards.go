package guards

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/apiserver/authz/rbac"
	"skiff/internal/apiserver/objects"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/catalog"
)

// guards has what the guards read.
type guards struct{ objects objects.Reader }

// Register adds the write guards to the endpoints of the API, in the order in which they are asked. roles is nil if RBAC is off.
func Register(api *verbs.API, reader objects.Reader, roles *rbac.Guard) {
	g := &guards{reader}
	add := func(group, plural string, guard verbs.WriteGuard) {
		end := api.Endpoint(group, "v1", plural)
		end.WriteGuards = append(end.WriteGuards, guard)
	}
	if roles != nil {
		add(rbacv1.GroupName, "roles", roleGuard(roles.CheckRole))
		add(rbacv1.GroupName, "clusterroles", roleGuard(roles.CheckRole))
		add(rbacv1.GroupName, "rolebindings", roleGuard(roles.CheckBinding))
		add(rbacv1.GroupName, "clusterrolebindings", roleGuard(roles.CheckBinding))
	}
	add(resourcev1.GroupName, "resourceclaims", g.resourceClaim)
	add(resourcev1.GroupName, "resourceclaimtemplates", g.resourceClaimTemplate)
	add(certificatesv1.GroupName, "podcertificaterequests", g.podCertificateRequest)
}

// roleGuard returns the guard for a check of RBAC roles or bindings: nobody may grant more than they have.
func roleGuard(check func(context.Context, rbac.Writer, catalog.Object, catalog.Object) error) verbs.WriteGuard {
	return func(rq *verbs.Request, obj, old catalog.Object) error {
		return check(rq.Ctx, rbac.Writer{User: rq.User, Name: rq.Route.Name}, obj, old)
	}
}

// invalid returns the error for an object with validation errors; nil if there are none.
func invalid(rq *verbs.Request, obj catalog.Object, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(rq.Endpoint.Info.GVK.GroupKind(), obj.GetName(), errs)
}
