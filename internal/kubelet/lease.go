package kubelet

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// How long the node counts as alive after its lease was renewed, and how often it is: often enough that three renewals may fail.
const (
	leaseDuration = 40 * time.Second
	leaseEvery    = leaseDuration / 4
	firstRenewal  = 200 * time.Millisecond
)

// runLease renews the node's lease, which says that it lives, and so that what it has reported holds: it is not renewed before the node has reported.
func (k *Kubelet) runLease(ctx context.Context) {
	version := ""
	retry := firstRenewal
	for ctx.Err() == nil {
		uid := k.reportedUID()
		if uid == "" {
			sleep(ctx, 5*time.Millisecond) // it is being registered
			continue
		}
		inner, cancel := context.WithTimeout(ctx, leaseEvery)
		renewed, err := k.renewLease(inner, uid, version)
		cancel()
		if err != nil {
			if version = ""; ctx.Err() == nil {
				k.log.Warn("the node's lease could not be renewed; trying again", "error", err)
			}
			sleep(ctx, retry)
			retry = min(2*retry, leaseEvery)
			continue
		}
		version, retry = renewed, firstRenewal
		sleep(ctx, leaseEvery)
	}
}

// reportedUID is that of the node, once it has reported.
func (k *Kubelet) reportedUID() types.UID {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	if k.node.reported.IsZero() {
		return ""
	}
	return k.node.registered.UID
}

// renewLease renews the lease, or makes it. version is that of the lease, empty if it is not known.
func (k *Kubelet) renewLease(ctx context.Context, node types.UID, version string) (string, error) {
	leases := k.options.Client.Kubernetes().CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now, duration, name := metav1.NowMicro(), int32(leaseDuration/time.Second), k.options.NodeName
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
