// Package noderestriction lets a kubelet write only what is its own: its node, the pods on it, and what belongs to these. The node
// authorizer has the first word; this plugin looks at what authorization cannot see, the content of the write.
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

// New returns the plugin. The authorizer is asked whether a node may have tokens and certificates that no pod on it mounts.
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

// nodeOf returns the name of the node that a user is, and whether it is one. The name can be empty: such a user may write nothing.
func nodeOf(u *authn.User) (name string, ok bool) {
	if u == nil {
		return "", false
	}
	name, ok = strings.CutPrefix(u.Username, nodePrefix)
	return name, ok && slices.Contains(u.Groups, authn.SystemNodes)
}

func (*plugin) Name() string { return "NodeRestriction" }

// Handles the writes of nodes.
func (*plugin) Handles(a *admission.Attributes) bool {
	_, ok := nodeOf(a.User)
	return ok && a.Operation != admission.Connect
}

// Admit refuses what is not the node's own.
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

// judge asks for a judgement of a stored object. What is found wrong with the cached state may have been put right a moment ago, so
// that only the newest state decides against a node. An object that does not exist is NotFound.
func judge[O catalog.Object](ctx context.Context, r objects.Reader, resource schema.GroupResource, namespace, name string, judgement func(O) error) error {
	if cached, ok := r.Get(resource, namespace, name).(O); ok && judgement(cached) == nil {
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
	return judgement(newest)
}

// notFound says that an object does not exist, in the words of upstream, which has singular names here.
func notFound(resource schema.GroupResource, name string) error {
	resource.Resource = strings.TrimSuffix(resource.Resource, "s")
	return apierrors.NewNotFound(resource, name)
}

// unexpected is the refusal of an object that is not of the kind it should be.
func unexpected(a *admission.Attributes, obj catalog.Object) error {
	return a.Forbidden(fmt.Errorf("unexpected type %T", obj))
}
