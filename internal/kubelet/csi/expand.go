package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// expansion is what is to be done because a volume has grown.
type expansion struct {
	size resource.Quantity
	// claimed says that the claim waits for it: its status is updated.
	claimed bool
}

// expansionOf decides whether the file system of a volume is to grow on this node. known is the size that it has here, zero if this process does
// not know. It has no client and no memory.
func expansionOf(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, known resource.Quantity) *expansion {
	if claim == nil || pv == nil {
		return nil
	}
	has, wanted := claim.Status.Capacity[corev1.ResourceStorage], pv.Spec.Capacity[corev1.ResourceStorage]
	resize := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	if allocated, ok := claim.Status.AllocatedResources[corev1.ResourceStorage]; ok && has.Cmp(wanted) < 0 {
		wanted = allocated
	}
	switch {
	case resize == corev1.PersistentVolumeClaimNodeResizePending, resize == corev1.PersistentVolumeClaimNodeResizeInProgress:
		return &expansion{size: wanted, claimed: true}
	case resize != "":
		return nil // a controller is at it, or it cannot be done
	case has.Cmp(wanted) < 0:
		return &expansion{size: wanted, claimed: true}
	case !known.IsZero() && known.Cmp(wanted) < 0 && slices.Contains(pv.Spec.AccessModes, corev1.ReadWriteMany):
		return &expansion{size: wanted} // another node has told the claim
	}
	return nil
}

// expand has the driver grow a volume at path if it is to. before is set while the volume is not published yet: then a failure keeps it from being so.
func (p *Plugin) expand(ctx context.Context, m *mount, path string, before bool) error {
	claim := m.request.Claim
	e := expansionOf(claim, m.request.PersistentVolume, m.size)
	if e == nil {
		if pv := m.request.PersistentVolume; pv != nil {
			m.size = pv.Spec.Capacity[corev1.ResourceStorage]
		}
		return nil
	}
	warn := func(text string) {
		p.options.Event(m.pod, corev1.EventTypeWarning, "VolumeResizeFailed", text)
		p.options.Event(claim, corev1.EventTypeWarning, "VolumeResizeFailed", text)
	}
	if m.readOnly {
		p.options.Event(m.pod, corev1.EventTypeWarning, "FileSystemResizeFailed",
			fmt.Sprintf("MountVolume.NodeExpandVolume failed for volume %q requested read-only file system", m.record.Name))
		return nil
	}
	err := p.tryExpand(ctx, m, e, path)
	if status.Code(err) == codes.FailedPrecondition { // not while it is in use
		warn(fmt.Sprintf("NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", m.record.Name, err))
		return nil
	}
	if err != nil && before {
		return m.failed(step{"MountVolume.MountDevice failed while expanding volume", "MapVolume.SetUpDevice failed while expanding volume"}, err)
	}
	if err != nil {
		warn(fmt.Sprintf("NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", m.record.Name, err))
	}
	return nil
}

func (p *Plugin) tryExpand(ctx context.Context, m *mount, e *expansion, path string) error {
	claim := m.request.Claim
	if ok, err := m.driver.can(ctx, csi.NodeServiceCapability_RPC_EXPAND_VOLUME); err != nil || !ok {
		if err == nil && e.claimed {
			err = fmt.Errorf("NodeExpand is not supported by the CSI driver %s", m.record.Driver)
		}
		return err
	}
	secrets, err := p.secrets(ctx, m.expandSecret)
	if err != nil {
		return fmt.Errorf("expander.NodeExpand failed to get NodeExpandSecretRef %s/%s: %w", m.expandSecret.Namespace, m.expandSecret.Name, err)
	}
	capability, err := m.capability(ctx)
	if err != nil {
		return err
	}
	if e.claimed && len(claim.Status.AllocatedResources) > 0 {
		if claim, err = p.patchClaim(ctx, claim, func(s *corev1.PersistentVolumeClaimStatus) {
			s.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizeInProgress}
		}); err != nil {
			return err
		}
	}
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = m.driver.node.NodeExpandVolume(calling, &csi.NodeExpandVolumeRequest{VolumeId: m.record.Handle, VolumePath: path, StagingTargetPath: m.stagingPath,
		CapacityRange: &csi.CapacityRange{RequiredBytes: e.size.Value()}, VolumeCapability: capability, Secrets: secrets})
	if err != nil {
		if e.claimed && final(err) {
			if _, patchErr := p.patchClaim(ctx, claim, func(s *corev1.PersistentVolumeClaimStatus) { expansionFailed(s, err, time.Now()) }); patchErr != nil {
				p.options.Log.Warn("failed to report that a volume cannot be expanded", "claim", claim.Namespace+"/"+claim.Name, "err", patchErr)
			}
		}
		return err
	}
	m.size = e.size
	text := fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", m.record.Name, m.record.Node)
	p.options.Event(m.pod, corev1.EventTypeNormal, "FileSystemResizeSuccessful", text)
	p.options.Event(claim, corev1.EventTypeNormal, "FileSystemResizeSuccessful", text)
	if !e.claimed {
		return nil
	}
	claim, err = p.patchClaim(ctx, claim, func(s *corev1.PersistentVolumeClaimStatus) { expanded(s, e.size) })
	if err == nil {
		m.request.Claim = claim
	}
	return err
}

// resizeConditions are the conditions of a claim that are about its size.
var resizeConditions = []corev1.PersistentVolumeClaimConditionType{corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
	corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError}

// expanded sets the status of a claim whose volume has its new size.
func expanded(s *corev1.PersistentVolumeClaimStatus, size resource.Quantity) {
	if s.Capacity == nil {
		s.Capacity = corev1.ResourceList{}
	}
	s.Capacity[corev1.ResourceStorage] = size
	delete(s.AllocatedResourceStatuses, corev1.ResourceStorage)
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool { return slices.Contains(resizeConditions, c.Type) })
}

// expansionFailed sets the status of a claim whose volume the driver does not grow, and will not if the request makes no sense to it.
func expansionFailed(s *corev1.PersistentVolumeClaimStatus, err error, now time.Time) {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		if s.AllocatedResourceStatuses == nil {
			s.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
		}
		s.AllocatedResourceStatuses[corev1.ResourceStorage] = corev1.PersistentVolumeClaimNodeResizeInfeasible
	}
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimNodeResizeError
	})
	s.Conditions = append(s.Conditions, corev1.PersistentVolumeClaimCondition{Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now), Message: fmt.Sprintf("failed to expand pvc with %v", err)})
}

// patchClaim changes the status of a claim, unless it was changed since it was read.
func (p *Plugin) patchClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolumeClaimStatus)) (*corev1.PersistentVolumeClaim, error) {
	changed := claim.DeepCopy()
	change(&changed.Status)
	before := claim.DeepCopy()
	before.ResourceVersion = "" // so that the patch has it
	old, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	now, err := json.Marshal(changed)
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(old, now, claim)
	if err != nil {
		return nil, fmt.Errorf("failed to compute the patch of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return p.options.Source.PatchClaimStatus(ctx, claim.Namespace, claim.Name, patch)
}
