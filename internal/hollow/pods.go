package hollow

import (
	"context"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/client"
	"skiff/internal/journey"
)

// podChanged queues a pod if there may be something to do about it. It is called for every change of every bound pod.
func (n *Nodes) podChanged(pod *corev1.Pod) {
	k := n.kubelets[pod.Spec.NodeName]
	if k == nil {
		return
	}
	k.observe(pod)
	if !idle(pod, n.behaviour) && !k.isStopped() {
		n.podQueue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
}

// podDeleted frees a pod's address.
func (n *Nodes) podDeleted(pod *corev1.Pod) {
	if k := n.kubelets[pod.Spec.NodeName]; k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.forget(pod.UID)
	}
}

func (k *kubelet) forget(uid types.UID) {
	if r := k.pods[uid]; r != nil {
		if r.host != 0 {
			k.hosts.free(r.host)
		}
		delete(k.pods, uid)
	}
}

// observe takes the address of a pod from before this process, and frees that of a terminal one.
func (k *kubelet) observe(pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch r := k.pods[pod.UID]; {
	case terminal(pod) && pod.DeletionTimestamp == nil:
		k.forget(pod.UID)
	case r == nil && pod.Status.PodIP != "" && !pod.Spec.HostNetwork && !terminal(pod):
		r = k.pod(pod.UID)
		if r.host = hostOf(k.ranges(), pod.Status.PodIP); r.host != 0 {
			k.hosts.take(r.host)
		}
	}
}

// network returns the addresses that a pod gets from the node. The caller must not hold the node's lock.
func (k *kubelet) network(pod *corev1.Pod) podNetwork {
	host := k.hostIP()
	return podNetwork{hostIP: host, addresses: func() []string {
		if pod.Spec.HostNetwork {
			return []string{host}
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		ranges := k.ranges()
		r := k.pod(pod.UID)
		if r.host == 0 {
			r.host = k.hosts.allocate(limit(ranges))
		}
		return addressesOf(ranges, r.host)
	}}
}

// reconcile does what is to be done about a pod.
func (n *Nodes) reconcile(ctx context.Context, key types.NamespacedName) (requeueAt time.Time, err error) {
	pod, err := n.podLister.Pods(key.Namespace).Get(key.Name)
	if err != nil {
		return time.Time{}, nil // it was deleted
	}
	k := n.kubelets[pod.Spec.NodeName]
	if k == nil || k.isStopped() {
		return time.Time{}, nil
	}
	observed, since := k.hasObserved(pod)
	if !observed {
		return time.Time{}, nil // the last report has not been observed yet
	}
	now := time.Now()
	s := decide(pod, n.behaviour, k.network(pod), since, now)
	if s.status == nil && !s.remove {
		return s.requeueAt, nil
	}
	ctx, err = n.as(client.Because(ctx, pod), k)
	if err != nil {
		return time.Time{}, err
	}
	if s.status != nil {
		span := n.span(k, pod, s.status, now)
		err = n.report(span.In(ctx), k, pod, s.status, now)
		span.End(err)
	}
	if err == nil && s.remove {
		err = n.remove(ctx, pod)
	}
	switch {
	case apierrors.IsNotFound(err):
		return time.Time{}, nil
	case err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil:
		n.options.Log.Warn("hollow node failed to report pod status", "node", k.name, "pod", key, "error", err)
	}
	return s.requeueAt, err
}

// span records in a pod's journey that its node has picked it up, and returns the span of its becoming ready, nil if it does not.
func (n *Nodes) span(k *kubelet, pod *corev1.Pod, status *corev1.PodStatus, now time.Time) *client.Span {
	if pod.Status.StartTime == nil {
		n.options.Watch.Record(pod, journey.Pickup, now, time.Now(), nil, journey.Attribute{Key: "node", Value: k.name})
	}
	if isReady(&pod.Status) || !isReady(status) {
		return nil
	}
	span := n.options.Watch.Begin(pod, journey.Ready)
	span.Set("node", k.name)
	return span
}

func isReady(s *corev1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

// hasObserved reports whether a pod, as observed, has the status that was reported last, and when that was.
func (k *kubelet) hasObserved(pod *corev1.Pod) (ok bool, since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.pods[pod.UID]
	if r == nil {
		return true, time.Time{}
	}
	return version(pod.ResourceVersion) >= r.version, r.since
}

func version(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (n *Nodes) report(ctx context.Context, k *kubelet, pod *corev1.Pod, status *corev1.PodStatus, now time.Time) error {
	sent := *pod // a shallow copy: the status is replaced, nothing of it is changed
	sent.ManagedFields = nil
	sent.Status = *status
	got, err := n.api.core.Pods(pod.Namespace).UpdateStatus(ctx, &sent, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if current, err := n.podLister.Pods(pod.Namespace).Get(pod.Name); err != nil || current.UID != pod.UID {
		return nil // it was deleted, and its state forgotten
	}
	r := k.pod(pod.UID)
	r.since, r.version = now, version(got.ResourceVersion)
	return nil
}

// remove deletes a terminated pod, and no other of its name.
func (n *Nodes) remove(ctx context.Context, pod *corev1.Pod) error {
	now := int64(0)
	return n.api.core.Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID}})
}
