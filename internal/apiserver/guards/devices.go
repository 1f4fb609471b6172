package guards

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/catalog"
)

// resourceClaim guards ResourceClaims: admin access needs a namespace that is labeled for it, and some parts of a claim's status need a permission
// of their own.
func (g *guards) resourceClaim(rq *verbs.Request, obj, old catalog.Object) error {
	claim := obj.(*resourcev1.ResourceClaim)
	var errs field.ErrorList
	switch {
	case old == nil:
		errs = g.checkAdminAccess(rq, claim.Namespace, requestedAdminAccess(&claim.Spec))
	case rq.Route.Subresource == "status":
		errs = g.checkClaimStatus(rq, claim, old.(*resourcev1.ResourceClaim))
	}
	return invalid(rq, obj, errs)
}

// resourceClaimTemplate guards new ResourceClaimTemplates like the claims that are made of them. The spec of a template cannot change later.
func (g *guards) resourceClaimTemplate(rq *verbs.Request, obj, old catalog.Object) error {
	if old != nil {
		return nil
	}
	return invalid(rq, obj, g.checkAdminAccess(rq, obj.GetNamespace(), requestedAdminAccess(&obj.(*resourcev1.ResourceClaimTemplate).Spec.Spec)))
}

// requestedAdminAccess returns the path of the first request for admin access in a claim; nil if there is none.
func requestedAdminAccess(spec *resourcev1.ResourceClaimSpec) *field.Path {
	for i, r := range spec.Devices.Requests {
		if r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess {
			return field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess")
		}
	}
	return nil
}

// grantedAdminAccess returns the path of the first result with admin access in an allocation; nil if there is none.
func grantedAdminAccess(a *resourcev1.AllocationResult) *field.Path {
	if a == nil {
		return nil
	}
	for i, r := range a.Devices.Results {
		if r.AdminAccess != nil && *r.AdminAccess {
			return field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess")
		}
	}
	return nil
}

// checkAdminAccess refuses admin access at a path in a namespace that is not labeled for it. A nil path asks for no admin access.
func (g *guards) checkAdminAccess(rq *verbs.Request, namespace string, path *field.Path) field.ErrorList {
	if path == nil {
		return nil
	}
	ns, err := g.objects.Fresh(rq.Ctx, corev1.Resource("namespaces"), "", namespace)
	if err != nil {
		return field.ErrorList{field.InternalError(path, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err))}
	}
	if ns.GetLabels()[resourcev1.DRAAdminNamespaceLabelKey] != "true" {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace", resourcev1.DRAAdminNamespaceLabelKey))}
	}
	return nil
}

// checkClaimStatus returns an error for each part of a claim's status that the user may not change.
func (g *guards) checkClaimStatus(rq *verbs.Request, claim, old *resourcev1.ResourceClaim) (errs field.ErrorList) {
	status, before := &claim.Status, &old.Status
	if grantedAdminAccess(before.Allocation) == nil {
		errs = g.checkAdminAccess(rq, claim.Namespace, grantedAdminAccess(status.Allocation))
	}
	if !equality.Semantic.DeepEqual(status.Allocation, before.Allocation) || !equality.Semantic.DeepEqual(status.ReservedFor, before.ReservedFor) {
		if err := authorizeClaim(rq, rq.Route.Verb, resourcev1.SubresourceBinding, "", ""); err != nil {
			errs = append(errs, field.Forbidden(field.NewPath("status", "allocation"),
				fmt.Sprintf(`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="%s" permission: %s`, rq.Route.Verb, err)))
		}
	}
	if status.Allocation == nil {
		return errs // without an allocation there are no devices
	}
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + rq.Route.Verb}
	if isBoundToNode(rq.User, allocatedNode(status.Allocation)) {
		verbs = append([]string{resourcev1.VerbPrefixAssociatedNode + rq.Route.Verb}, verbs...)
	}
	for _, driver := range changedDrivers(status.Devices, before.Devices) {
		if err := authorizeDriver(rq, verbs, driver); err != nil {
			errs = append(errs, field.Forbidden(field.NewPath("status", "devices"),
				fmt.Sprintf(`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %s`, verbs, err)))
		}
	}
	return errs
}

// authorizeDriver returns nil if the user has one of several verbs on the device status of a driver, or the refusal for the first verb.
func authorizeDriver(rq *verbs.Request, verbs []string, driver string) (refusal error) {
	for _, verb := range verbs {
		err := authorizeClaim(rq, verb, resourcev1.SubresourceDriver, rq.Route.Namespace, driver)
		if err == nil {
			return nil
		}
		if refusal == nil {
			refusal = err
		}
	}
	return refusal
}

// authorizeClaim returns nil if the user has a verb on a subresource of resourceclaims that exists only for authorization.
func authorizeClaim(rq *verbs.Request, verb, subresource, namespace, name string) error {
	a := &authz.Attributes{User: rq.User, Verb: verb, Resource: true, Group: resourcev1.GroupName, Version: "v1", Plural: "resourceclaims", Subresource: subresource,
		Namespace: namespace, Name: name}
	decision, reason, err := rq.API.Authorizer.Authorize(rq.Ctx, a)
	if decision == authz.Allow {
		return nil
	}
	return response.Forbidden(a, reason, err)
}

// changedDrivers returns the drivers whose devices' status differs from before, sorted.
func changedDrivers(devices, before []resourcev1.AllocatedDeviceStatus) []string {
	type key struct{ driver, pool, device, share string }
	keyOf := func(d *resourcev1.AllocatedDeviceStatus) key {
		k := key{driver: d.Driver, pool: d.Pool, device: d.Device}
		if d.ShareID != nil {
			k.share = *d.ShareID
		}
		return k
	}
	unmatched := map[key]*resourcev1.AllocatedDeviceStatus{}
	for i := range before {
		unmatched[keyOf(&before[i])] = &before[i]
	}
	drivers := map[string]struct{}{}
	for i := range devices {
		d := &devices[i]
		if old := unmatched[keyOf(d)]; old == nil || !equality.Semantic.DeepEqual(old, d) {
			drivers[d.Driver] = struct{}{}
		}
		delete(unmatched, keyOf(d))
	}
	for k := range unmatched {
		drivers[k.driver] = struct{}{}
	}
	return slices.Sorted(maps.Keys(drivers))
}

// allocatedNode returns the only node that an allocation is for; empty if there may be others.
func allocatedNode(a *resourcev1.AllocationResult) string {
	if a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := a.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) != 0 || len(term.MatchFields) != 1 {
		return ""
	}
	f := term.MatchFields[0]
	if f.Key != "metadata.name" || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 {
		return ""
	}
	return f.Values[0]
}

// isBoundToNode reports whether the user is a service account whose token is bound to a node.
func isBoundToNode(user *authn.User, node string) bool {
	_, _, isAccount := authn.ServiceAccountOf(user.Username)
	names := user.Extra[authn.ExtraNodeName]
	return node != "" && len(names) == 1 && names[0] == node && isAccount
}
