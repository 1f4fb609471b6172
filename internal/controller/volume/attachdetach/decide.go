package attachdetach

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/client"
	"skiff/internal/controller"
)

// maxWaitForUnmount is how long a volume that no pod uses waits for a node that is not ready to unmount it.
const maxWaitForUnmount = 6 * time.Minute

// decision collects what to do about a node.
type decision struct {
	observed
	of     *ofNode
	now    time.Time
	detach []toDetach
	again  time.Duration // when to look again; 0: when something changes
}

// toDetach is a volume that is to be detached, though the node may use it if it is forced.
type toDetach struct {
	attached
	forced bool
}

// decide attaches what pods on a node want, detaches what none wants any more, and reports what is attached.
func (l *loop) decide(seen observed, now time.Time) controller.Decision {
	d := &decision{observed: seen, now: now, of: l.memory.begin(seen)}
	defer l.memory.end(seen.name, d.of)
	d.chooseDetached(l.forceOnTimeout)
	var actions []controller.Action
	actions = append(actions, d.report()...)
	actions = append(actions, d.tellAttaching()...)
	attach, taken := l.attach(d)
	if len(d.detach) == 0 {
		return d.finish(l, append(actions, attach...), taken)
	}
	inUse := new([]corev1.UniqueVolumeName)
	actions = append(actions, readVolumesInUse(seen.name, inUse))
	return controller.Decision{Actions: actions, Then: func(err error) controller.Decision {
		if err != nil {
			l.leave(seen.name, taken)
			return controller.Decision{Err: err}
		}
		var deletes []controller.Action
		for _, t := range d.detach {
			if !t.forced && slices.Contains(*inUse, t.volume) {
				d.soon(time.Second) // the kubelet was first; its next status will be observed
				continue
			}
			deletes = append(deletes, controller.Delete(t.VolumeAttachment, metav1.DeleteOptions{}))
		}
		return d.finish(l, append(deletes, attach...), taken)
	}}
}

// finish returns the last actions about a node. taken are the volumes that are attached by them.
func (d *decision) finish(l *loop, actions []controller.Action, taken []string) controller.Decision {
	return controller.Decision{Actions: actions, RequeueAfter: d.again, Then: func(err error) controller.Decision {
		if err != nil {
			l.leave(d.name, taken)
		}
		return controller.Decision{Err: err, RequeueAfter: d.again}
	}}
}

func (l *loop) leave(node string, taken []string) {
	for _, volume := range taken {
		l.memory.leave(volume, node)
	}
}

// soon looks at the node again after a time, or earlier.
func (d *decision) soon(after time.Duration) {
	if d.again == 0 || after < d.again {
		d.again = after
	}
}

// chooseDetached chooses the volumes to detach: those that no pod wants, and that the node does not use or is not asked about.
func (d *decision) chooseDetached(forceOnTimeout bool) {
	if d.node != nil && !isManaged(d.node) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(d.attached)) {
		a := d.attached[name]
		if d.wanted[name] != nil || a.DeletionTimestamp != nil {
			continue
		}
		since, known := d.of.unwanted[name]
		if !known {
			since = d.now
			d.of.unwanted[name] = since
		}
		late := d.now.Sub(since) >= maxWaitForUnmount
		forced := d.node != nil && isOutOfService(d.node) || forceOnTimeout && late && (d.node == nil || !isReady(d.node))
		inUse := d.node == nil || slices.Contains(d.node.Status.VolumesInUse, a.volume)
		switch {
		case forced || !inUse:
			d.detach = append(d.detach, toDetach{a, forced})
		case forceOnTimeout && !late:
			d.soon(maxWaitForUnmount - d.now.Sub(since))
		}
	}
}

// report updates the volumes that are attached in the node's status, without those that are to be detached, and tells the pods whose volumes are new.
func (d *decision) report() []controller.Action {
	if d.node == nil || !isManaged(d.node) {
		return nil
	}
	var is []corev1.AttachedVolume
	known := map[corev1.UniqueVolumeName]string{}
	for _, v := range d.node.Status.VolumesAttached {
		known[v.Name] = v.DevicePath
		if !strings.HasPrefix(string(v.Name), plugin) {
			is = append(is, v) // somebody else's
		}
	}
	var actions []controller.Action
	for _, name := range slices.Sorted(maps.Keys(d.attached)) {
		a := d.attached[name]
		if !a.Status.Attached || a.DeletionTimestamp != nil || slices.ContainsFunc(d.detach, func(t toDetach) bool { return t.Name == name }) {
			continue
		}
		path, reported := known[a.volume]
		is = append(is, corev1.AttachedVolume{Name: a.volume, DevicePath: path})
		if w := d.wanted[name]; w != nil && !reported {
			delete(d.of.told, name)
			actions = append(actions, w.tell(corev1.EventTypeNormal, "SuccessfulAttachVolume", "AttachVolume.Attach succeeded", "")...)
		}
	}
	slices.SortFunc(is, func(a, b corev1.AttachedVolume) int { return cmp.Compare(a.Name, b.Name) })
	if len(is) == len(known) && !slices.ContainsFunc(is, func(v corev1.AttachedVolume) bool { _, ok := known[v.Name]; return !ok }) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"volumesAttached": is}})
	if err != nil {
		panic(err) // strings can be written
	}
	return append([]controller.Action{controller.Patch(d.node, "status", types.MergePatchType, patch)}, actions...)
}

// readVolumesInUse returns an action that reads from the API which volumes a node uses; none if the node is gone.
func readVolumesInUse(name string, into *[]corev1.UniqueVolumeName) controller.Action {
	return controller.Call("look which volumes node "+name+" uses", func(ctx context.Context, c *client.Client) error {
		n, err := c.Kubernetes().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			*into = n.Status.VolumesInUse
		}
		return err
	})
}

// attach returns the actions that create VolumeAttachments, and Events about volumes that other nodes have. taken are the volumes that only this node may
// have now.
func (l *loop) attach(d *decision) (actions []controller.Action, taken []string) {
	var creates []controller.Action
	for _, name := range slices.Sorted(maps.Keys(d.wanted)) {
		w := d.wanted[name]
		if _, there := d.attached[name]; there {
			continue // it is being attached, or detached
		}
		if _, there, _ := l.attachments.GetByKey(name); there {
			continue
		}
		if !isShared(w.volume) {
			var others []string
			free := l.memory.take(w.volume.Name, d.name, func() bool {
				others = l.othersWith(w.volume.Name, d.name)
				return len(others) == 0
			})
			if !free {
				if len(others) == 0 {
					d.soon(time.Second) // another node is just getting it
					continue
				}
				actions = append(actions, l.tellWaiting(d, name, others)...)
				continue
			}
			taken = append(taken, w.volume.Name)
		}
		volume := w.volume.Name
		creates = append(creates, controller.Create(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{
			NodeName: d.name, Attacher: w.volume.Spec.CSI.Driver, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}}))
	}
	if len(creates) > 0 {
		actions = append(actions, controller.Parallel(workers, creates...))
	}
	return actions, taken
}

// othersWith returns the other nodes that a volume is attached to, or being attached to or detached from.
func (l *loop) othersWith(volume, node string) (nodes []string) {
	for _, a := range l.attached(attachmentsByVolume, volume) {
		if a.Spec.NodeName != node {
			nodes = append(nodes, a.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	return nodes
}
