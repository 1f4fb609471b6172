package nodestatus

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	leaseDuration     = 40 * time.Second  // how long the node counts as alive after a renewal
	renewInterval     = leaseDuration / 4 // three renewals may fail
	firstRenewalRetry = 200 * time.Millisecond
)

// RunLease renews the node's lease until ctx ends. A lease says that the node is alive and that the status it has reported holds, so it is not renewed
// before this process has reported a status.
func (m *Manager) RunLease(ctx context.Context) {
	version := ""
	retry := firstRenewalRetry
	for ctx.Err() == nil {
		uid := m.reportedUID()
		if uid == "" {
			sleep(ctx, 5*time.Millisecond) // the node is being registered
			continue
		}
		inner, cancel := context.WithTimeout(ctx, renewInterval)
		renewed, err := m.renewLease(inner, uid, version)
		cancel()
		if err != nil {
			if version = ""; ctx.Err() == nil {
				m.log.Warn("failed to renew the node's lease; retrying", "node", m.options.NodeName, "error", err)
			}
			sleep(ctx, retry)
			retry = min(2*retry, renewInterval)
			continue
		}
		version, retry = renewed, firstRenewalRetry
		sleep(ctx, renewInterval)
	}
}

// renewLease renews the lease, or creates it, and returns its new resourceVersion. version is the lease's resourceVersion, empty if it is not known.
func (m *Manager) renewLease(ctx context.Context, node types.UID, version string) (string, error) {
	leases := m.options.Client.Kubernetes().CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now, duration, name := metav1.NowMicro(), int32(leaseDuration/time.Second), m.options.NodeName
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceNodeLease, ResourceVersion: version,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node}}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &duration, RenewTime: &now},
	}
	var got *coordinationv1.Lease
	var err error
	if version != "" {
		got, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	} else if got, err = leases.Create(ctx, lease, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		if got, err = leases.Get(ctx, name, metav1.GetOptions{}); err == nil {
			lease.ResourceVersion = got.ResourceVersion
			got, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		}
	}
	if err != nil {
		return "", err
	}
	return got.ResourceVersion, nil
}
