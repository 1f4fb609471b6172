package scheduler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/component-helpers/storage/volume"

	"skiff/internal/scheduling"
)

// reservedVolumes carries out a VolumeReservation: it writes to volumes which claims they are for, and to claims on which node volumes are to be
// provisioned. The PersistentVolume controller and the provisioners do the rest.
type reservedVolumes struct {
	*scheduling.VolumeReservation
	scheduler *Scheduler
	pod       *scheduling.Pod

	// How many were written, in a version that replaced the reserved one.
	writtenVolumes, writtenClaims int
}

// reserveVolumes assumes the volumes and claims as they are going to be written.
func (s *Scheduler) reserveVolumes(pod *scheduling.Pod, r *scheduling.VolumeReservation) (reserved, error) {
	out := &reservedVolumes{VolumeReservation: r, scheduler: s, pod: pod}
	for i := range r.Existing {
		if !r.Existing[i].Changed {
			continue
		}
		if err := s.storage.volumes.assume(r.Existing[i].Volume); err != nil {
			out.unreserve()
			return nil, err
		}
	}
	for _, claim := range r.Provisioned {
		if err := s.storage.claims.assume(claim); err != nil {
			out.unreserve()
			return nil, err
		}
	}
	return out, nil
}

func (r *reservedVolumes) unreserve() {
	for _, e := range r.Existing[r.writtenVolumes:] {
		r.scheduler.storage.volumes.restore(e.Volume)
	}
	for _, claim := range r.Provisioned[r.writtenClaims:] {
		r.scheduler.storage.claims.restore(claim)
	}
}

func (r *reservedVolumes) preBind(ctx context.Context) error {
	if err := r.write(ctx); err != nil {
		return err
	}
	if err := r.wait(ctx); err != nil {
		return fmt.Errorf("binding volumes: %w", err)
	}
	return nil
}

// write writes the volumes and claims. At most maxBinding pods do so at a time.
func (r *reservedVolumes) write(ctx context.Context) error {
	s := r.scheduler
	select {
	case s.writers <- struct{}{}:
		defer func() { <-s.writers }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for i := range r.Existing {
		written, err := s.api.CoreV1().PersistentVolumes().Update(ctx, r.Existing[i].Volume, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		r.Existing[i].Volume = written
		r.writtenVolumes++
	}
	for i, claim := range r.Provisioned {
		written, err := s.api.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, claim, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		r.Provisioned[i] = written
		r.writtenClaims++
	}
	return nil
}

// wait returns when all claims are bound, or with the error that they cannot be.
func (r *reservedVolumes) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	keys := []string{podWaiter(r.pod.UID), nodeWaiter(r.Node)}
	for _, e := range r.Existing {
		keys = append(keys, claimWaiter(e.Claim.Namespace, e.Claim.Name))
	}
	for _, claim := range r.Provisioned {
		keys = append(keys, claimWaiter(claim.Namespace, claim.Name))
	}
	woken, stop := r.scheduler.waiters.register(keys)
	defer stop()
	for {
		if bound, err := r.bound(); bound || err != nil {
			return err
		}
		select {
		case <-woken:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// bound reports whether all claims are bound. It is an error if that cannot happen any more.
func (r *reservedVolumes) bound() (bool, error) {
	s := r.scheduler
	node, err := s.storage.nodes.Get(r.Node)
	if err != nil {
		return false, fmt.Errorf("failed to get node %q: %w", r.Node, err)
	}
	pod, err := s.podLister.Pods(r.pod.Namespace).Get(r.pod.Name)
	if err == nil && pod.UID != r.pod.UID {
		err = apierrors.NewNotFound(corev1.Resource("pod"), r.pod.Name)
	}
	if err != nil {
		return false, fmt.Errorf("pod does not exist any more: %w", err)
	}
	for i := range r.Existing {
		if bound, err := r.existingBound(&r.Existing[i], node); !bound || err != nil {
			return false, err
		}
	}
	for _, claim := range r.Provisioned {
		if bound, err := r.provisionedBound(claim, node); !bound || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (r *reservedVolumes) existingBound(e *scheduling.ReservedVolume, node *corev1.Node) (bool, error) {
	s := r.scheduler.storage
	v, ok := s.volumes.getObserved(e.Volume.Name)
	if !ok {
		return false, fmt.Errorf("failed to check binding: persistentvolume %q not found", e.Volume.Name)
	}
	claim, ok := s.claims.getObserved(keyOf(e.Claim))
	if !ok {
		return false, fmt.Errorf("failed to check binding: persistentvolumeclaim %q not found", keyOf(e.Claim))
	}
	if older(v, e.Volume) {
		return false, nil
	}
	if err := volume.CheckNodeAffinity(v, node.Labels); err != nil {
		return false, fmt.Errorf("pv %q node affinity doesn't match node %q: %w", v.Name, node.Name, err)
	}
	if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == "" {
		return false, fmt.Errorf("ClaimRef got reset for pv %q", v.Name)
	}
	return scheduling.IsClaimBound(claim), nil
}

func (r *reservedVolumes) provisionedBound(written *corev1.PersistentVolumeClaim, node *corev1.Node) (bool, error) {
	s := r.scheduler.storage
	claim, ok := s.claims.getObserved(keyOf(written))
	if !ok {
		return false, fmt.Errorf("failed to check provisioning pvc: persistentvolumeclaim %q not found", keyOf(written))
	}
	if older(claim, written) {
		return false, nil
	}
	// A provisioner that cannot provision the volume on that node removes the annotation.
	if claim.Annotations[volume.AnnSelectedNode] != r.Node {
		return false, fmt.Errorf("provisioning failed for PVC %q", claim.Name)
	}
	if claim.Spec.VolumeName != "" {
		v, ok := s.volumes.getObserved(claim.Spec.VolumeName)
		if !ok {
			return false, nil // it will be observed
		}
		if err := volume.CheckNodeAffinity(v, node.Labels); err != nil {
			return false, fmt.Errorf("pv %q node affinity doesn't match node %q: %w", v.Name, node.Name, err)
		}
	}
	return scheduling.IsClaimBound(claim), nil
}

// older reports whether an object is of an older version than another.
func older(obj, than metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), than.GetResourceVersion())
	return err == nil && order < 0
}
