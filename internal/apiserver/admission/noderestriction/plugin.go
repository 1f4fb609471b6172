package noderestriction

import (
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

// New returns the plugin. The authorizer decides whether a node may request tokens and certificates that no pod on it mounts.
func New(r objects.Reader, authorizer authz.Authorizer) admission.Plugin {
	return &plugin{objects: r, authorizer: authorizer}
}

type plugin struct {
	objects    objects.Reader
	authorizer authz.Authorizer
}

var (
	pods            = corev1.Resource("pods")
	nodes           = corev1.Resource("nodes")
	volumes         = corev1.Resource("persistentvolumes")
	claims          = corev1.Resource("persistentvolumeclaims")
	accounts        = corev1.Resource("serviceaccounts")
	leases          = coordinationv1.Resource("leases")
	csiNodes        = storagev1.Resource("csinodes")
	csiDrivers      = storagev1.Resource("csidrivers")
	resourceSlices  = resourcev1.Resource("resourceslices")
	signingRequests = certificatesv1.Resource("certificatesigningrequests")
	podCertificates = certificatesv1.Resource("podcertificaterequests")

	nodePrefix = authn.NodeUser("")
)

// nodeOf returns the node name of a node's user, and whether the user is a node at all. The name can be empty: such a user may write nothing.
func nodeOf(u *authn.User) (name string, ok bool) {
	if u == nil {
		return "", false
	}
	name, ok = strings.CutPrefix(u.Username, nodePrefix)
	return name, ok && slices.Contains(u.Groups, authn.SystemNodes)
}

func (*plugin) Name() string { return "NodeRestriction" }

// Handles reports whether the user is a node.
func (*plugin) Handles(a *admission.Attributes) bool {
	_, ok := nodeOf(a.User)
	return ok && a.Operation != admission.Connect
}

// Admit refuses writes of a node to objects that do not belong to it.
func (p *plugin) Admit(ctx context.Context, a *admission.Attributes) error {
	node, _ := nodeOf(a.User)
	if node == "" {
		return a.Forbidden(fmt.Errorf("could not determine node from user %q", a.User.Username))
	}
	switch {
	case a.Is(pods):
		return p.admitPod(ctx, node, a)
	case a.Is(nodes):
		return admitNode(node, a)
	case a.Is(claims):
		return admitClaim(node, a)
	case a.Is(accounts):
		return p.admitToken(ctx, node, a)
	case a.Is(podCertificates):
		return p.admitPodCertificate(ctx, node, a)
	case a.Is(leases):
		return admitLease(node, a)
	case a.Is(csiNodes):
		return admitCSINode(node, a)
	case a.Is(resourceSlices):
		return admitResourceSlice(node, a)
	case a.Is(signingRequests):
		return admitSigningRequest(node, a)
	default:
		return nil
	}
}

// checkStored applies a check to a stored object. The cached object may be outdated, so one that fails the check is read again from the
// store, which decides. An object that does not exist is NotFound.
func checkStored[O catalog.Object](ctx context.Context, r objects.Reader, resource schema.GroupResource, namespace, name string, check func(O) error) error {
	if cached, ok := r.Get(resource, namespace, name).(O); ok && check(cached) == nil {
		return nil
	}
	obj, err := r.Fresh(ctx, resource, namespace, name)
	if apierrors.IsNotFound(err) {
		return notFound(resource, name)
	}
	if err != nil {
		return err
	}
	newest, ok := obj.(O)
	if !ok {
		return fmt.Errorf("unexpected type %T", obj)
	}
	return check(newest)
}

// notFound returns the NotFound error with upstream's text, which has singular resource names here.
func notFound(resource schema.GroupResource, name string) error {
	resource.Resource = strings.TrimSuffix(resource.Resource, "s")
	return apierrors.NewNotFound(resource, name)
}

// unexpected returns the refusal of an object of an unexpected Go type.
func unexpected(a *admission.Attributes, obj catalog.Object) error {
	return a.Forbidden(fmt.Errorf("unexpected type %T", obj))
}
