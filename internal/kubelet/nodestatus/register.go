package nodestatus

import (
	"context"
	"encoding/json"
	"maps"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// register creates the Node, or adopts the one that exists, and retries until that succeeds.
func (m *Manager) register(ctx context.Context) {
	for retry := firstRetry; ctx.Err() == nil; retry = min(2*retry, maxRetry) {
		err := m.tryRegister(ctx)
		if err == nil {
			m.recorder.Event(m.Ref(), corev1.EventTypeNormal, "Starting", "Starting kubelet.")
			return
		}
		if ctx.Err() == nil {
			m.log.Warn("failed to register the node; retrying", "node", m.options.NodeName, "error", err)
		}
		sleep(ctx, retry)
	}
}

func (m *Manager) tryRegister(ctx context.Context) error {
	nodes := m.options.Client.Kubernetes().CoreV1().Nodes()
	initial := m.initialNode()
	initial.Status = *m.status(ctx, &corev1.Node{})
	created, err := nodes.Create(ctx, initial, metav1.CreateOptions{})
	switch {
	case err == nil:
		m.setReported(created)
		return nil
	case !apierrors.IsAlreadyExists(err):
		return err
	}
	existing, err := nodes.Get(ctx, m.options.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	bootID := m.options.Machine.Info.BootID
	if previous := existing.Status.NodeInfo.BootID; previous != "" && previous != bootID {
		m.recorder.Eventf(m.Ref(), corev1.EventTypeWarning, "Rebooted", "Node %s has been rebooted, boot id: %s", existing.Name, bootID)
	}
	if existing, err = m.patchMetadata(ctx, existing, initial); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.registered = existing
	return nil
}

// patchMetadata gives a node that was registered before the labels and annotations of initial. Labels that others set stay.
func (m *Manager) patchMetadata(ctx context.Context, existing, initial *corev1.Node) (*corev1.Node, error) {
	missing := map[string]map[string]string{"labels": {}, "annotations": {}}
	for name, value := range initial.Labels {
		if existing.Labels[name] != value {
			missing["labels"][name] = value
		}
	}
	for name, value := range initial.Annotations {
		if existing.Annotations[name] != value {
			missing["annotations"][name] = value
		}
	}
	if len(missing["labels"])+len(missing["annotations"]) == 0 {
		return existing, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": missing})
	if err != nil {
		return nil, err
	}
	return m.options.Client.Kubernetes().CoreV1().Nodes().Patch(ctx, existing.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
}

// initialNode returns the node as it registers, without its status.
func (m *Manager) initialNode() *corev1.Node {
	name := m.options.NodeName
	labels := map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": runtime.GOARCH}
	maps.Copy(labels, m.options.Labels)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
		Spec:       corev1.NodeSpec{Taints: m.options.Taints},
	}
}
