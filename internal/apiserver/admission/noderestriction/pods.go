package noderestriction

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"skiff/internal/apiserver/admission"
)

func (p *plugin) admitPod(ctx context.Context, node string, a *admission.Attributes) error {
	switch a.Subresource {
	case "":
	case "status":
		return admitPodStatus(node, a)
	case "eviction":
		return p.admitEviction(ctx, node, a)
	default:
		return a.Forbidden(fmt.Errorf("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", a.Subresource))
	}
	switch a.Operation {
	case admission.Create:
		return p.admitMirrorPod(ctx, node, a)
	case admission.Delete:
		pod, ok := a.Old.(*corev1.Pod)
		if !ok {
			return unexpected(a, a.Old)
		}
		if pod.Spec.NodeName != node {
			return a.Forbidden(fmt.Errorf("node %q can only delete pods with spec.nodeName set to itself", node))
		}
		return nil
	default:
		return a.Forbidden(fmt.Errorf("unexpected operation %q, node %q can only create and delete mirror pods", a.Operation, node))
	}
}

// admitMirrorPod lets a node create mirror pods of itself, if they refer to no other objects, which the node could otherwise read.
func (p *plugin) admitMirrorPod(ctx context.Context, node string, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return unexpected(a, a.Object)
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		return a.Forbidden(fmt.Errorf("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, node))
	}
	if pod.Spec.NodeName != node {
		return a.Forbidden(fmt.Errorf("node %q can only create pods with spec.nodeName set to itself", node))
	}
	if err := p.checkOwner(ctx, node, a, pod); err != nil {
		return err
	}
	used, err := usedObjects(&pod.Spec)
	if err != nil {
		return a.Forbidden(fmt.Errorf("error checking mirror pod for API references: %w", err))
	}
	if used != "" {
		return a.Forbidden(fmt.Errorf("node %q can not create pods that reference %s", node, used))
	}
	return nil
}

// checkOwner requires that a pod's one owner is its node.
func (p *plugin) checkOwner(ctx context.Context, node string, a *admission.Attributes, pod *corev1.Pod) error {
	if len(pod.OwnerReferences) > 1 {
		return a.Forbidden(fmt.Errorf("node %q can only create pods with a single owner reference set to itself", node))
	}
	if len(pod.OwnerReferences) == 0 {
		return a.Forbidden(fmt.Errorf("node %q can only create pods with an owner reference set to itself", node))
	}
	owner := &pod.OwnerReferences[0]
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != node:
		return a.Forbidden(fmt.Errorf("node %q can only create pods with an owner reference set to itself", node))
	case owner.Controller == nil || !*owner.Controller:
		return a.Forbidden(fmt.Errorf("node %q can only create pods with a controller owner reference set to itself", node))
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return a.Forbidden(fmt.Errorf("node %q must not set blockOwnerDeletion on an owner reference", node))
	}
	return checkStored(ctx, p.objects, nodes, "", node, func(n *corev1.Node) error {
		if owner.UID != n.UID {
			return a.Forbidden(fmt.Errorf("node %s UID mismatch: expected %s got %s", node, owner.UID, n.UID))
		}
		return nil
	})
}

// admitPodStatus lets a node update the status of its pods, except for labels and resource claims, which others decide.
func admitPodStatus(node string, a *admission.Attributes) error {
	if a.Operation != admission.Update {
		return a.Forbidden(fmt.Errorf("unexpected operation %q", a.Operation))
	}
	old, ok := a.Old.(*corev1.Pod)
	if !ok {
		return unexpected(a, a.Old)
	}
	if old.Spec.NodeName != node {
		return a.Forbidden(fmt.Errorf("node %q can only update pod status for pods with spec.nodeName set to itself", node))
	}
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return unexpected(a, a.Object)
	}
	switch {
	case !maps.Equal(old.Labels, pod.Labels):
		return a.Forbidden(fmt.Errorf("node %q cannot update labels through pod status", node))
	case !slices.EqualFunc(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses, sameClaim):
		return a.Forbidden(fmt.Errorf("node %q cannot update resource claim statues", node))
	case !sameExtendedClaim(old.Status.ExtendedResourceClaimStatus, pod.Status.ExtendedResourceClaimStatus):
		return a.Forbidden(fmt.Errorf("node %q cannot update extended resource claim status", node))
	case !slices.EqualFunc(old.Status.NodeAllocatableResourceClaimStatuses, pod.Status.NodeAllocatableResourceClaimStatuses, sameAllocation):
		return a.Forbidden(fmt.Errorf("node %q cannot update node allocatable resource claim statuses", node))
	}
	return nil
}

func sameClaim(a, b corev1.PodResourceClaimStatus) bool {
	if a.ResourceClaimName == nil || b.ResourceClaimName == nil {
		return a.Name == b.Name && a.ResourceClaimName == b.ResourceClaimName
	}
	return a.Name == b.Name && *a.ResourceClaimName == *b.ResourceClaimName
}

func sameExtendedClaim(a, b *corev1.PodExtendedResourceClaimStatus) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ResourceClaimName == b.ResourceClaimName && slices.Equal(a.RequestMappings, b.RequestMappings)
}

func sameAllocation(a, b corev1.NodeAllocatableResourceClaimStatus) bool {
	sameMapping := func(a, b corev1.NodeAllocatableMappedResources) bool {
		return a.Name == b.Name && resource.QuantityPtrEqual(a.Quantity, b.Quantity)
	}
	sameOverhead := func(a, b corev1.NodeAllocatableOverheadResources) bool {
		return a.Name == b.Name && resource.QuantityPtrEqual(a.PerPod, b.PerPod) && resource.QuantityPtrEqual(a.PerContainer, b.PerContainer)
	}
	return a.ResourceClaimName == b.ResourceClaimName && slices.Equal(a.Containers, b.Containers) &&
		slices.EqualFunc(a.Mapping, b.Mapping, sameMapping) && slices.EqualFunc(a.Overhead, b.Overhead, sameOverhead)
}

// admitEviction lets a node evict its own pods.
func (p *plugin) admitEviction(ctx context.Context, node string, a *admission.Attributes) error {
	if a.Operation != admission.Create {
		return a.Forbidden(fmt.Errorf("unexpected operation %s", a.Operation))
	}
	eviction, ok := a.Object.(*policyv1.Eviction)
	if !ok {
		return unexpected(a, a.Object)
	}
	name := a.Name
	if name == "" {
		name = eviction.Name
	}
	if name == "" {
		return a.Forbidden(errors.New("could not determine pod from request data"))
	}
	return checkStored(ctx, p.objects, pods, a.Namespace, name, func(pod *corev1.Pod) error {
		if pod.Spec.NodeName != node {
			return a.Forbidden(fmt.Errorf("node %s can only evict pods with spec.nodeName set to itself", node))
		}
		return nil
	})
}
