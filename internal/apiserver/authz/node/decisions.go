package node

import (
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/authz"
)

var (
	pods                = corev1.Resource("pods")
	volumes             = corev1.Resource("persistentvolumes")
	attachments         = storagev1.Resource("volumeattachments")
	resourceSlices      = resourcev1.Resource("resourceslices")
	certificateRequests = certificatesv1.Resource("podcertificaterequests")
)

// decision decides whether a node's request is allowed, and if not, why.
type decision func(node string, at *authz.Attributes) (allowed bool, reason string)

// relation reports whether an object is related to a node.
type relation func(node string, o key) bool

// decisions returns the decisions for resources whose objects belong to single nodes.
func (a *Authorizer) decisions() map[schema.GroupResource]decision {
	return map[schema.GroupResource]decision{
		corev1.Resource("secrets"):                reading(a.uses(secret)),
		corev1.Resource("configmaps"):             reading(a.uses(configMap)),
		corev1.Resource("persistentvolumeclaims"): a.claims,
		volumes:                               getting(a.mountsVolume),
		attachments:                           getting(a.ownsAttachment),
		resourcev1.Resource("resourceclaims"): getting(a.uses(resourceClaim)),
		resourceSlices:                        a.slices,
		certificateRequests:                   a.podCertificates,
		corev1.Resource("serviceaccounts"):    a.serviceAccounts,
		pods:                                  a.pods,
		corev1.Resource("nodes"):              nodes,
		coordinationv1.Resource("leases"):     leases,
		storagev1.Resource("csinodes"):        csiNodes,
	}
}

func (a *Authorizer) uses(k kind) relation {
	return func(node string, o key) bool { return a.index.used(k, o, node) }
}

func (a *Authorizer) runsPod(node string, o key) bool {
	pod, ok := a.objects.Get(pods, o.namespace, o.name).(*corev1.Pod)
	return ok && pod.Spec.NodeName == node
}

func (a *Authorizer) mountsVolume(node string, o key) bool {
	volume, ok := a.objects.Get(volumes, "", o.name).(*corev1.PersistentVolume)
	return ok && o.namespace == "" && a.index.used(claim, claimOf(volume), node)
}

func (a *Authorizer) ownsAttachment(node string, o key) bool {
	attachment, ok := a.objects.Get(attachments, "", o.name).(*storagev1.VolumeAttachment)
	return ok && o.namespace == "" && attachment.Spec.NodeName == node
}

func (a *Authorizer) ownsSlice(node string, o key) bool {
	slice, ok := a.objects.Get(resourceSlices, "", o.name).(*resourcev1.ResourceSlice)
	return ok && o.namespace == "" && ptr.Deref(slice.Spec.NodeName, "") == node
}

func (a *Authorizer) ownsCertificateRequest(node string, o key) bool {
	request, ok := a.objects.Get(certificateRequests, o.namespace, o.name).(*certificatesv1.PodCertificateRequest)
	return ok && string(request.Spec.NodeName) == node
}

// related allows requests for a single object that is related to the node.
func related(is relation, node string, at *authz.Attributes) (bool, string) {
	switch {
	case at.Name == "":
		return false, "No Object name found"
	case !is(node, key{at.Namespace, at.Name}):
		return false, fmt.Sprintf("no relationship found between node '%s' and this object", node)
	}
	return true, ""
}

// reading allows get, list and watch of single related objects.
func reading(is relation) decision {
	return func(node string, at *authz.Attributes) (bool, string) {
		switch {
		case !slices.Contains([]string{"get", "list", "watch"}, at.Verb):
			return false, "can only read resources of this type"
		case at.Subresource != "":
			return false, "cannot read subresource"
		case at.Namespace == "":
			return false, "can only read namespaced object of this type"
		}
		return related(is, node, at)
	}
}

// getting allows get of single related objects.
func getting(is relation) decision {
	return func(node string, at *authz.Attributes) (bool, string) {
		switch {
		case at.Verb != "get":
			return false, "can only get individual resources of this type"
		case at.Subresource != "":
			return false, "cannot get subresource"
		}
		return related(is, node, at)
	}
}

func (a *Authorizer) claims(node string, at *authz.Attributes) (bool, string) {
	switch {
	case at.Subresource != "status":
		return getting(a.uses(claim))(node, at)
	case at.Verb != "update" && at.Verb != "patch":
		return false, "can only get/update/patch this type"
	}
	return related(a.uses(claim), node, at)
}

func (a *Authorizer) serviceAccounts(node string, at *authz.Attributes) (bool, string) {
	switch {
	case at.Verb == "get" && at.Subresource == "":
		return reading(a.uses(serviceAccount))(node, at)
	case at.Verb != "create" || at.Name == "":
		return false, "can only create tokens for individual service accounts"
	case at.Subresource != "token":
		return false, "can only create token subresource of serviceaccount"
	}
	return related(a.uses(serviceAccount), node, at)
}

// slices lets a node manage its own ResourceSlices; NodeRestriction refuses those it creates for another node.
func (a *Authorizer) slices(node string, at *authz.Attributes) (bool, string) {
	if at.Subresource != "" {
		return false, "cannot authorize ResourceSlice subresources"
	}
	switch at.Verb {
	case "create":
		return true, ""
	case "get", "update", "patch", "delete":
		return related(a.ownsSlice, node, at)
	case "watch", "list", "deletecollection":
		if selects(at, resourcev1.ResourceSliceSelectorNodeName, node) {
			return true, ""
		}
		return false, "can only list/watch/deletecollection resourceslices with nodeName field selector"
	}
	return false, "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection"
}

func (a *Authorizer) podCertificates(node string, at *authz.Attributes) (bool, string) {
	if at.Subresource != "" {
		return false, "nodes may not access the status subresource of PodCertificateRequests"
	}
	switch at.Verb {
	case "create":
		return true, ""
	case "get":
		return related(a.ownsCertificateRequest, node, at)
	case "list", "watch":
		if selects(at, "spec.nodeName", node) {
			return true, ""
		}
		return false, "can only list/watch podcertificaterequests with nodeName field selector"
	}
	return false, fmt.Sprintf("nodes may not %s podcertificaterequests", at.Verb)
}

// pods lets a node read the pods bound to it, and create, delete, evict and report on pods; NodeRestriction limits these to its own.
func (a *Authorizer) pods(node string, at *authz.Attributes) (bool, string) {
	switch at.Subresource + " " + at.Verb {
	case " get":
		return related(a.runsPod, node, at)
	case " list", " watch":
		switch {
		case selects(at, "spec.nodeName", node):
			return true, ""
		case at.Name != "":
			return related(a.runsPod, node, at)
		}
		return false, "can only list/watch pods with spec.nodeName field selector"
	case " create", " delete", "status update", "status patch", "eviction create":
		return true, ""
	}
	return false, ""
}

// nodes lets a node read its own Node, even before it exists, and write Nodes; NodeRestriction limits these to its own.
func nodes(node string, at *authz.Attributes) (bool, string) {
	switch at.Subresource + " " + at.Verb {
	case " create", " update", " patch", "status update", "status patch":
		return true, ""
	case " get", " list", " watch":
		switch at.Name {
		case node:
			return true, ""
		case "":
			return false, fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", node)
		}
		return false, fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", node, at.Name)
	}
	return false, ""
}

var objectVerbs = []string{"get", "create", "update", "patch", "delete"}

// leases lets a node access the Lease with its name. The attributes of a create have no name: NodeRestriction checks it.
func leases(node string, at *authz.Attributes) (bool, string) {
	switch {
	case !slices.Contains(objectVerbs, at.Verb):
		return false, "can only get, create, update, patch, or delete a node lease"
	case at.Namespace != corev1.NamespaceNodeLease:
		return false, fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	case at.Verb != "create" && at.Name != node:
		return false, "can only access node lease with the same name as the requesting node"
	}
	return true, ""
}

// csiNodes lets a node access the CSINode with its name. The attributes of a create have no name: NodeRestriction checks it.
func csiNodes(node string, at *authz.Attributes) (bool, string) {
	switch {
	case at.Subresource == "status":
		return false, "CSINode status access requires CSIVolumeHealth feature"
	case at.Subresource != "":
		return false, "cannot authorize CSINode subresources"
	case !slices.Contains(objectVerbs, at.Verb):
		return false, "can only get, create, update, patch, or delete a CSINode"
	case at.Verb != "create" && at.Name != node:
		return false, "can only access CSINode with the same name as the requesting node"
	}
	return true, ""
}

// selects reports whether the field selector requires that the field has the value.
func selects(at *authz.Attributes, field, value string) bool {
	if at.FieldSelector == "" {
		return false
	}
	selector, err := fields.ParseSelector(at.FieldSelector)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(selector.Requirements(), func(r fields.Requirement) bool {
		return r.Field == field && r.Operator == selection.Equals && r.Value == value
	})
}
