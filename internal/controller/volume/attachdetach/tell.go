package attachdetach

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/controller"
	"skiff/internal/controller/volume"
)

// attachTimeout is after how long a volume that is being attached is told to be late.
const attachTimeout = 2 * time.Minute

func byName(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// tell returns Events about the pods that want a volume.
func (w *wanted) tell(kind, reason, what, suffix string) (actions []controller.Action) {
	for _, pod := range w.pods {
		actions = append(actions, controller.Event(pod, kind, reason, "%s for volume %q %s", what, w.volume.Name, suffix))
	}
	return actions
}

// tellAttaching returns Events about volumes that could not be attached, or not in time. Each failure is told once.
func (d *decision) tellAttaching() (actions []controller.Action) {
	for _, name := range slices.Sorted(maps.Keys(d.wanted)) {
		w := d.wanted[name]
		a, there := d.attached[name]
		if !there || a.Status.Attached || a.DeletionTimestamp != nil {
			continue
		}
		failure, key := "", ""
		if failed := a.Status.AttachError; failed != nil {
			failure = failed.Message
			key = failed.Time.String() + failure
		} else {
			late := d.now.Sub(a.CreationTimestamp.Time) / attachTimeout
			d.soon(a.CreationTimestamp.Add((late + 1) * attachTimeout).Sub(d.now))
			if late > 0 {
				failure = fmt.Sprintf("timed out waiting for external-attacher of %v CSI driver to attach volume %v", w.volume.Spec.CSI.Driver, w.volume.Spec.CSI.VolumeHandle)
				key = fmt.Sprint(int64(late))
			}
		}
		if failure != "" && d.of.told[name] != key {
			d.of.told[name] = key
			actions = append(actions, w.tell(corev1.EventTypeWarning, "FailedAttachVolume", "AttachVolume.Attach failed", ": "+failure)...)
		}
	}
	return actions
}

// tellWaiting returns Events about a volume that other nodes have. Pods of other namespaces are counted, not named.
func (l *loop) tellWaiting(d *decision, name string, others []string) (actions []controller.Action) {
	const told = "multi-attach"
	if d.of.told[name] == told {
		return nil
	}
	d.of.told[name] = told
	w := d.wanted[name]
	var users []*corev1.Pod
	ref := w.volume.Spec.ClaimRef
	for _, pod := range l.podsOf(controller.Key{Namespace: ref.Namespace, Name: ref.Name}) {
		if slices.Contains(others, pod.Spec.NodeName) && !volume.HasEnded(pod) {
			users = append(users, pod)
		}
	}
	why := "Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node"
	if len(users) > 0 { // of the same namespace: a volume has one claim
		slices.SortFunc(users, byName)
		var names []string
		for _, pod := range users {
			names = append(names, pod.Name)
		}
		why = "Volume is already used by pod(s) " + strings.Join(names, ", ")
	}
	return w.tell(corev1.EventTypeWarning, "FailedAttachVolume", "Waiting for detach", why)
}
