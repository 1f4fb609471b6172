package ephemeral

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"skiff/internal/controller"
	"skiff/internal/controller/volume"
)

// loop reads the caches.
type loop struct {
	pods   corelisters.PodLister
	claims corelisters.PersistentVolumeClaimLister
	podsOf func(claim controller.Key) []*corev1.Pod
}

// New returns the loop. Its keys are pods with generic ephemeral volumes.
func New(deps controller.Deps) controller.Loop {
	core := deps.Informers.Core().V1()
	l := &loop{pods: core.Pods().Lister(), claims: core.PersistentVolumeClaims().Lister(), podsOf: volume.PodsOf(core.Pods().Informer())}
	return controller.Loop{Name: "ephemeral-volume-controller", EventSource: "ephemeral_volume", QueueName: "ephemeral_volume", Reconcile: l.reconcile,
		Watch: []controller.Watch{
			{Informer: core.Pods().Informer(), Type: &corev1.Pod{}, Keys: podKeys},
			{Informer: core.PersistentVolumeClaims().Informer(), Type: &corev1.PersistentVolumeClaim{}, Keys: l.claimKeys},
		}}
}

// podKeys returns the key of a new pod that has ephemeral volumes. Volumes of a pod do not change, and what was created for it goes with it.
func podKeys(before, after metav1.Object) []controller.Key {
	if after == nil || before != nil && before.GetUID() == after.GetUID() {
		return nil
	}
	if pod := after.(*corev1.Pod); needsClaims(pod) {
		return []controller.Key{controller.KeyOf(pod)}
	}
	return nil
}

// claimKeys returns the pods that a claim that was deleted was for, or whose claim it was in the way of.
func (l *loop) claimKeys(before, after metav1.Object) (keys []controller.Key) {
	if before == nil || after != nil && after.GetUID() == before.GetUID() {
		return nil
	}
	for _, pod := range l.podsOf(controller.KeyOf(before)) {
		if needsClaims(pod) {
			keys = append(keys, controller.KeyOf(pod))
		}
	}
	return keys
}

func needsClaims(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Ephemeral != nil })
}

func (l *loop) reconcile(key controller.Key, _ time.Time) controller.Decision {
	pod, err := l.pods.Pods(key.Namespace).Get(key.Name)
	if err != nil || pod.DeletionTimestamp != nil {
		return controller.Nothing
	}
	return decide(pod, pod.Spec.Volumes, func(name string) *corev1.PersistentVolumeClaim {
		claim, err := l.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
		if err != nil {
			return nil
		}
		return claim
	})
}

// decide creates the claims of volumes, one after the other, until one fails. claimNamed returns a claim, or nil.
func decide(pod *corev1.Pod, volumes []corev1.Volume, claimNamed func(string) *corev1.PersistentVolumeClaim) controller.Decision {
	for i := range volumes {
		v := &volumes[i]
		if v.Ephemeral == nil {
			continue
		}
		name := ephemeral.VolumeClaimName(pod, v)
		if claim := claimNamed(name); claim != nil {
			if err := ephemeral.VolumeIsForPod(pod, claim); err != nil {
				return fail(pod, v, err)
			}
			continue
		}
		return controller.Decision{Actions: []controller.Action{controller.Create(claimFor(pod, v, name))}, Then: func(err error) controller.Decision {
			if err != nil {
				return fail(pod, v, fmt.Errorf("create PVC %s: %w", name, err))
			}
			return decide(pod, volumes[i+1:], claimNamed)
		}}
	}
	return controller.Nothing
}

// claimFor returns the claim of a volume, which the pod controls.
func claimFor(pod *corev1.Pod, v *corev1.Volume, name string) *corev1.PersistentVolumeClaim {
	template := v.Ephemeral.VolumeClaimTemplate.DeepCopy()
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: pod.Namespace, Annotations: template.Annotations, Labels: template.Labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}}, Spec: template.Spec}
}

// fail tells a pod that a volume has no claim, and tries again.
func fail(pod *corev1.Pod, v *corev1.Volume, err error) controller.Decision {
	return controller.Decision{Actions: []controller.Action{controller.Event(pod, corev1.EventTypeWarning, "FailedBinding", "ephemeral volume %s: %v", v.Name, err)},
		Err: fmt.Errorf("ephemeral volume %s: %w", v.Name, err)}
}
