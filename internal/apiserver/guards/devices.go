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

// resourceClaim checks the claims of devices by who writes them: administrative access needs a namespace that is marked for it, and some parts of a
// claim's status need a permission of their own.
func (g *guards) resourceClaim(rq *verbs.Request, obj, old catalog.Object) error {
	claim := obj.(*resourcev1.ResourceClaim)
	var errs field.ErrorList
	switch {
	case old == nil:
		errs = g.adminAccess(rq, claim.Namespace, requestedAccess(&claim.Spec))
	case rq.Route.Subresource == "status":
		errs = g.claimStatus(rq, claim, old.(*resourcev1.ResourceClaim))
	}
	return invalid(rq, obj, errs)
}

// resourceClaimTemplate checks new templates like the claims that are made of them; the spec of a template does not change.
func (g *guards) resourceClaimTemplate(rq *verbs.Request, obj, old catalog.Object) error {
	if old != nil {
		return nil
	}
	return invalid(rq, obj, g.adminAccess(rq, obj.GetNamespace(), requestedAccess(&obj.(*resourcev1.ResourceClaimTemplate).Spec.Spec)))
}

// requestedAccess is where a claim asks for administrative access; nil if nowhere.
func requestedAccess(spec *resourcev1.ResourceClaimSpec) *field.Path {
	for i, r := range spec.Devices.Requests {
		if r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess {
			return field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess")
		}
	}
	return nil
}

// grantedAccess is where an allocation grants administrative access; nil if nowhere.
func grantedAccess(a *resourcev1.AllocationResult) *field.Path {
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

// adminAccess refuses administrative access, at a path unless that is nil, in a namespace that is not marked for it.
func (g *guards) adminAccess(rq *verbs.Request, namespace string, path *field.Path) field.ErrorList {
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

// claimStatus says what the user may not change in a claim's status.
func (g *guards) claimStatus(rq *verbs.Request, claim, old *resourcev1.ResourceClaim) (errs field.ErrorList) {
	status, before := &claim.Status, &old.Status
	if grantedAccess(before.Allocation) == nil {
		errs = g.adminAccess(rq, claim.Namespace, grantedAccess(status.Allocation))
	}
	if !equality.Semantic.DeepEqual(status.Allocation, before.Allocation) || !equality.Semantic.DeepEqual(status.ReservedFor, before.ReservedFor) {
		if err := mayClaim(rq, rq.Route.Verb, resourcev1.SubresourceBinding, "", ""); err != nil {
			errs = append(errs, field.Forbidden(field.NewPath("status", "allocation"),
				fmt.Sprintf(`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="%s" permission: %s`, rq.Route.Verb, err)))
		}
	}
	if status.Allocation == nil {
		return errs // what devices say goes with the allocation
	}
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + rq.Route.Verb}
	if onNode(rq.User, allocatedNode(status.Allocation)) {
		verbs = append([]string{resourcev1.VerbPrefixAssociatedNode + rq.Route.Verb}, verbs...)
	}
	for _, driver := range changedDrivers(status.Devices, before.Devices) {
		if err := mayAny(rq, verbs, driver); err != nil {
			errs = append(errs, field.Forbidden(field.NewPath("status", "devices"),
				fmt.Sprintf(`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %s`, verbs, err)))
		}
	}
	return errs
}

// mayAny asks whether the user may do one of several things to what a driver says; the refusal is that of the first.
func mayAny(rq *verbs.Request, verbs []string, driver string) (refusal error) {
	for _, verb := range verbs {
		err := mayClaim(rq, verb, resourcev1.SubresourceDriver, rq.Route.Namespace, driver)
		if err == nil {
			return nil
		}
		if refusal == nil {
			refusal = err
		}
	}
	return refusal
}

// mayClaim asks for a permission on a subresource of claims that exists only to be asked for.
func mayClaim(rq *verbs.Request, verb, subresource, namespace, name string) error {
	a := &authz.Attributes{User: rq.User, Verb: verb, Resource: true, Group: resourcev1.GroupName, Version: "v1", Plural: "resourceclaims", Subresource: subresource,
		Namespace: namespace, Name: name}
	decision, reason, err := rq.API.Authorizer.Authorize(rq.Ctx, a)
	if decision == authz.Allow {
		return nil
	}
	return response.Forbidden(a, reason, err)
}

// changedDrivers are the drivers whose devices' status is another than before, sorted.
func changedDrivers(devices, before []resourcev1.AllocatedDeviceStatus) []string {
	type key struct{ driver, pool, device, share string }
	keyOf := func(d *resourcev1.AllocatedDeviceStatus) key {
		k := key{driver: d.Driver, pool: d.Pool, device: d.Device}
		if d.ShareID != nil {
			k.share = *d.ShareID
		}
		return k
	}
	gone := map[key]*resourcev1.AllocatedDeviceStatus{}
	for i := range before {
		gone[keyOf(&before[i])] = &before[i]
	}
	drivers := map[string]struct{}{}
	for i := range devices {
		d := &devices[i]
		if old := gone[keyOf(d)]; old == nil || !equality.Semantic.DeepEqual(old, d) {
			drivers[d.Driver] = struct{}{}
		}
		delete(gone, keyOf(d))
	}
	for k := range gone {
		drivers[k.driver] = struct{}{}
	}
	return slices.Sorted(maps.Keys(drivers))
}

// allocatedNode is the one node an allocation is for; empty if it is for more.
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

// onNode says whether the user is a service account whose token is bound to a node.
func onNode(user *authn.User, node string) bool {
	_, _, isAccount := authn.ServiceAccountOf(user.Username)
	names := user.Extra[authn.ExtraNodeName]
	return node != "" && len(names) == 1 && names[0] == node && isAccount
}
