package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"skiff/internal/client"
	"skiff/internal/scheduling"
)

// reservedDevices carries out a DeviceReservation: it writes to claims which devices they have and that they are reserved for the pod.
type reservedDevices struct {
	*scheduling.DeviceReservation
	scheduler *Scheduler
	pod       *scheduling.Pod
	created   bool // the claim for extended resources
}

func (s *Scheduler) reserveDevices(pod *scheduling.Pod, r *scheduling.DeviceReservation) (reserved, error) {
	if err := s.devices.reserve(r.Claims); err != nil {
		return nil, err
	}
	return &reservedDevices{DeviceReservation: r, scheduler: s, pod: pod}, nil
}

func (r *reservedDevices) preBind(ctx context.Context) error {
	if err := r.write(ctx); err != nil {
		return err
	}
	if !slices.ContainsFunc(r.Claims, func(c scheduling.ReservedClaim) bool { return scheduling.HasBindingConditions(c.Claim) }) {
		return nil
	}
	r.scheduler.recorder.event(r.pod.Pod, nil, r.pod.Spec.SchedulerName, corev1.EventTypeNormal, "BindingConditionsPending", "Scheduling",
		fmt.Sprintf("waiting for binding conditions for device on node %s", r.Node))
	return r.wait(ctx)
}

// write writes the claims. At most maxBinding pods do so at a time.
func (r *reservedDevices) write(ctx context.Context) error {
	select {
	case r.scheduler.writers <- struct{}{}:
		defer func() { <-r.scheduler.writers }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for i := range r.Claims {
		c := &r.Claims[i]
		if resourceclaim.IsReservedForPod(r.pod.Pod, c.Claim, false) {
			continue
		}
		if r.isExtended(i) {
			if err := r.create(ctx, c); err != nil {
				return err
			}
		} else if err := r.writeClaim(ctx, c, c.Claim.UID); err != nil {
			return err
		}
	}
	return nil
}

// isExtended reports whether the i-th claim is the one for extended resources.
func (r *reservedDevices) isExtended(i int) bool { return r.Extended != nil && i == len(r.Claims)-1 }

// create creates the claim for extended resources, and writes to the pod's status which containers use what of it.
func (r *reservedDevices) create(ctx context.Context, c *scheduling.ReservedClaim) error {
	reservedAs := c.Claim.UID
	object := c.Claim.DeepCopy()
	object.UID, object.Status = "", resourcev1.ResourceClaimStatus{}
	made, err := r.scheduler.api.ResourceV1().ResourceClaims(object.Namespace).Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create claim for extended resources %s/%s: %w", object.Namespace, object.GenerateName, err)
	}
	c.Claim, r.created = made, true
	if err := r.writeClaim(ctx, c, reservedAs); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.pod.UID}, "status": map[string]any{
		"extendedResourceClaimStatus": corev1.PodExtendedResourceClaimStatus{RequestMappings: r.Mappings, ResourceClaimName: c.Claim.Name}}})
	if err != nil {
		return err
	}
	if _, err := r.scheduler.api.CoreV1().Pods(r.pod.Namespace).Patch(ctx, r.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("update pod %s/%s ExtendedResourceClaimStatus: %w", r.pod.Namespace, r.pod.Name, err)
	}
	return nil
}

// writeClaim writes what is allocated to a claim, if anything is to be, and that it is reserved for the pod. It was reserved with that UID.
func (r *reservedDevices) writeClaim(ctx context.Context, c *scheduling.ReservedClaim, reservedAs types.UID) error {
	api := r.scheduler.api.ResourceV1().ResourceClaims(c.Claim.Namespace)
	claim, refresh := c.Claim, false
	name := claim.Namespace + "/" + claim.Name
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var err error
		if refresh {
			if claim, err = api.Get(ctx, claim.Name, metav1.GetOptions{}); err != nil {
				return fmt.Errorf("get updated claim %s after conflict: %w", name, err)
			}
		}
		refresh = true
		if claim.DeletionTimestamp != nil || claim.UID != c.Claim.UID {
			return fmt.Errorf("claim %s got deleted in the meantime", name)
		}
		changed := claim.DeepCopy()
		if c.Devices != nil {
			if claim.Status.Allocation != nil {
				return fmt.Errorf("claim %s got allocated elsewhere in the meantime", name)
			}
			if !slices.Contains(changed.Finalizers, resourcev1.Finalizer) {
				changed.Finalizers = append(changed.Finalizers, resourcev1.Finalizer)
				if changed, err = api.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
					return fmt.Errorf("add finalizer to claim %s: %w", name, err)
				}
			}
			changed.Status.Allocation = c.Devices.DeepCopy()
		}
		if changed.Status.Allocation == nil {
			return fmt.Errorf("claim %s got deallocated elsewhere in the meantime", name)
		}
		changed.Status.ReservedFor = append(changed.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: r.pod.Name, UID: r.pod.UID})
		if changed.Status.Allocation.AllocationTimestamp == nil {
			changed.Status.Allocation.AllocationTimestamp = &metav1.Time{Time: time.Now()}
		}
		written, err := api.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		if err != nil {
			if c.Devices != nil {
				return fmt.Errorf("add allocation and reservation to claim %s: %w", name, err)
			}
			return fmt.Errorf("add reservation to claim %s: %w", name, err)
		}
		c.Claim = written
		r.scheduler.devices.wrote(reservedAs, written)
		return nil
	})
}

// wait returns when all devices are ready, or with the error that they are not.
func (r *reservedDevices) wait(ctx context.Context) error {
	s := r.scheduler
	ctx, cancel := context.WithTimeoutCause(ctx, r.Timeout, fmt.Errorf("%w: %w", scheduling.ErrDeviceBindingTimeout, context.DeadlineExceeded))
	defer cancel()
	keys := []string{podWaiter(r.pod.UID)}
	for _, c := range r.Claims {
		keys = append(keys, claimUIDWaiter(c.Claim.UID))
	}
	woken, stop := s.waiters.register(keys)
	defer stop()
	for {
		if ready, err := r.ready(); ready || err != nil {
			return err
		}
		select {
		case <-woken:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ready reports whether all devices are. It is an error if that cannot happen any more.
func (r *reservedDevices) ready() (bool, error) {
	pod, err := r.scheduler.podLister.Pods(r.pod.Namespace).Get(r.pod.Name)
	if err == nil && pod.UID != r.pod.UID {
		err = apierrors.NewNotFound(corev1.Resource("pod"), r.pod.Name)
	}
	if err != nil {
		return false, fmt.Errorf("pod does not exist any more: %w", err)
	}
	for i := range r.Claims {
		written := r.Claims[i].Claim
		claim := r.scheduler.devices.ResourceClaim(written.Namespace, written.Name)
		if claim == nil && r.isExtended(i) {
			return false, nil // it will be observed
		}
		if claim == nil || claim.UID != written.UID {
			return false, fmt.Errorf("could not find ResourceClaim %q", written.Namespace+"/"+written.Name)
		}
		if ready, err := scheduling.DevicesReady(claim); !ready || err != nil {
			if deadline, ok := scheduling.BindingDeadline(claim, r.Timeout); err == nil && ok && time.Now().After(deadline) {
				err = fmt.Errorf("%w: claim=%s", scheduling.ErrDeviceBindingTimeout, claim.Name)
			}
			return false, err
		}
	}
	return true, nil
}

// unreserve drops what was not written. Claims that were written stay allocated, but are no longer reserved for the pod; the claim for extended resources is
// deleted.
func (r *reservedDevices) unreserve() {
	s := r.scheduler
	ctx := client.Because(s.ctx, r.pod)
	for i, c := range r.Claims {
		s.devices.unreserve(c.Claim.UID)
		var err error
		switch {
		case r.isExtended(i):
			s.devices.unreserve(r.Extended.UID)
			if r.created {
				err = s.deleteClaim(ctx, c.Claim)
			}
		case c.Claim.Status.Allocation != nil && resourceclaim.IsReservedForPod(r.pod.Pod, c.Claim, false):
			patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"reservedFor":[{"$patch":"delete","uid":%q}]}}`, c.Claim.UID, r.pod.UID)
			_, err = s.api.ResourceV1().ResourceClaims(c.Claim.Namespace).Patch(ctx, c.Claim.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		}
		if ignoreGone(err) != nil && s.ctx.Err() == nil {
			s.log.Warn("failed to unreserve ResourceClaim", "claim", c.Claim.Namespace+"/"+c.Claim.Name, "pod", key(r.pod), "error", err)
		}
	}
}

// deleteClaim deletes a claim that the scheduler created, with its finalizer.
func (s *Scheduler) deleteClaim(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	api := s.api.ResourceV1().ResourceClaims(claim.Namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := api.Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if i := slices.Index(now.Finalizers, resourcev1.Finalizer); i >= 0 && now.UID == claim.UID {
			now.Finalizers = slices.Delete(now.Finalizers, i, i+1)
			_, err = api.Update(ctx, now, metav1.UpdateOptions{})
		}
		return err
	})
	if err == nil {
		uid := claim.UID
		err = api.Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	}
	return ignoreGone(err)
}

// release releases a claim that keeps a pod from all nodes, in the background. The pod is tried again when that is observed.
func (s *Scheduler) release(pod *scheduling.Pod, r *scheduling.ClaimRelease) {
	s.work.Go(func() {
		ctx := client.Because(s.ctx, pod)
		select {
		case s.writers <- struct{}{}:
			defer func() { <-s.writers }()
		case <-ctx.Done():
			return
		}
		var err error
		if r.Delete {
			err = s.deleteClaim(ctx, r.Claim)
		} else {
			free := r.Claim.DeepCopy()
			free.Status = resourcev1.ResourceClaimStatus{}
			_, err = s.api.ResourceV1().ResourceClaims(free.Namespace).UpdateStatus(ctx, free, metav1.UpdateOptions{})
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			s.log.Warn("failed to release ResourceClaim", "claim", r.Claim.Namespace+"/"+r.Claim.Name, "pod", key(pod), "error", err)
			s.queue.activate(key(pod)) // no event will requeue it
		}
	})
}
