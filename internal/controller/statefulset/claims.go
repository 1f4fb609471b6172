package statefulset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/client"
	"skiff/internal/controller"
)

// claimTemplates returns the set's claim templates. Of several with the same name the last one counts.
func (s *state) claimTemplates() []*corev1.PersistentVolumeClaim {
	templates := s.set.Spec.VolumeClaimTemplates
	out := make([]*corev1.PersistentVolumeClaim, 0, len(templates))
	for i := range templates {
		if !slices.ContainsFunc(templates[i+1:], func(later corev1.PersistentVolumeClaim) bool { return later.Name == templates[i].Name }) {
			out = append(out, &templates[i])
		}
	}
	return out
}

// claimName returns the name of a pod's claim.
func (s *state) claimName(template *corev1.PersistentVolumeClaim, pod *corev1.Pod) string {
	return template.Name + "-" + s.set.Name + "-" + strconv.Itoa(ordinalOf(s.set, pod))
}

func (s *state) newClaim(template *corev1.PersistentVolumeClaim, pod *corev1.Pod) *corev1.PersistentVolumeClaim {
	claim := template.DeepCopy()
	claim.Name, claim.Namespace = s.claimName(template, pod), s.set.Namespace
	if claim.Labels == nil {
		claim.Labels = map[string]string{}
	}
	maps.Copy(claim.Labels, s.set.Spec.Selector.MatchLabels)
	claim.OwnerReferences, _, _ = s.claimOwners(claim, pod)
	return claim
}

// createClaims returns the actions that create a pod's missing claims. They fail while a claim is being deleted.
func (s *state) createClaims(pod *corev1.Pod) []controller.Action {
	var actions []controller.Action
	for _, t := range s.claimTemplates() {
		name := s.claimName(t, pod)
		switch existing := s.claim(name); {
		case existing == nil:
			actions = append(actions, s.createClaim(s.newClaim(t, pod), pod))
		case existing.DeletionTimestamp != nil:
			actions = append(actions, controller.Call("wait for the deletion of PersistentVolumeClaim "+controller.KeyOf(existing).String(),
				func(context.Context, *client.Client) error { return fmt.Errorf("pvc %s is being deleted", name) }))
		}
	}
	return actions
}

func (s *state) createClaim(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod) controller.Action {
	done := controller.Event(s.set, corev1.EventTypeNormal, "SuccessfulCreate", "Create Claim %s Pod %s in StatefulSet %s success", claim.Name, pod.Name, s.set.Name)
	return controller.Sequence(func(err error) ([]controller.Action, error) {
		wrapped := fmt.Errorf("failed to create PVC %s: %w", claim.Name, err)
		if apierrors.IsAlreadyExists(err) {
			return nil, wrapped
		}
		return []controller.Action{controller.Event(s.set, corev1.EventTypeWarning, "FailedCreate", "Create Claim %s for Pod %s in StatefulSet %s failed error: %v",
			claim.Name, pod.Name, s.set.Name, err)}, wrapped
	}, controller.Create(claim), done)
}

// ownClaims returns the actions that give a pod's existing claims the owners that the retention policy asks for. warn adds an Event for each claim
// that something else controls.
func (s *state) ownClaims(pod *corev1.Pod, warn bool) []controller.Action {
	var actions []controller.Action
	for _, t := range s.claimTemplates() {
		claim := s.claim(s.claimName(t, pod))
		if claim == nil {
			continue
		}
		owners, changed, conflict := s.claimOwners(claim, pod)
		if conflict && (warn || changed) {
			actions = append(actions, controller.Event(s.set, corev1.EventTypeWarning, "ConflictingController",
				"PersistentVolumeClaim %s has a conflicting OwnerReference that acts as a managing controller, the retention policy is ignored for this claim", claim.Name))
		}
		if changed {
			claim = claim.DeepCopy()
			claim.OwnerReferences = owners
			actions = append(actions, controller.Update(claim))
		}
	}
	return actions
}

// claimOwners returns the owners that a pod's claim should have by the retention policy, and whether they differ from those it has. A claim is
// deleted with its owner: with the set for whenDeleted, with a pod beyond the replicas for whenScaled. A claim of an earlier set or pod of the same
// name is left alone. conflict reports that something else controls the claim: it is left to that.
func (s *state) claimOwners(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod) (owners []metav1.OwnerReference, changed, conflict bool) {
	deletedWithSet, deletedWithPod := s.claimPolicy()
	var ofSet, ofPod bool
	for _, ref := range claim.OwnerReferences {
		isSet, isPod := refersTo(ref, s.set, statefulSetKind), refersTo(ref, pod, podKind)
		controls := ref.Controller != nil && *ref.Controller
		switch {
		case isSet && ref.UID != s.set.UID, isPod && ref.UID != pod.UID:
			return claim.OwnerReferences, false, deletedWithSet || deletedWithPod
		case isSet || isPod:
			ofSet, ofPod = ofSet || isSet, ofPod || isPod
			changed = changed || !controls
		default:
			conflict = conflict || controls && (deletedWithSet || deletedWithPod)
			owners = append(owners, ref)
		}
	}
	if conflict {
		return owners, ofSet || ofPod, true
	}
	wantPod := deletedWithPod && !s.inRange(pod)
	wantSet := deletedWithSet && !wantPod
	if wantSet {
		owners = append(owners, *metav1.NewControllerRef(s.set, statefulSetKind))
	}
	if wantPod {
		owners = append(owners, *metav1.NewControllerRef(pod, podKind))
	}
	return owners, changed || ofSet != wantSet || ofPod != wantPod, false
}

// claimPolicy reports whether claims are deleted with the set, and with a pod when the set is scaled down.
func (s *state) claimPolicy() (whenDeleted, whenScaled bool) {
	p := s.set.Spec.PersistentVolumeClaimRetentionPolicy
	if p == nil {
		return false, false
	}
	return p.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType, p.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// claimsAreStale reports whether a new pod must wait, as a claim that it would use belongs to the pod before it and will be deleted with that.
func (s *state) claimsAreStale(pod *corev1.Pod) bool {
	if _, whenScaled := s.claimPolicy(); !whenScaled {
		return false
	}
	return slices.ContainsFunc(s.claimTemplates(), func(t *corev1.PersistentVolumeClaim) bool {
		claim := s.claim(s.claimName(t, pod))
		return claim != nil && slices.ContainsFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool {
			return refersTo(ref, pod, podKind) && ref.UID != pod.UID
		})
	})
}

// refersTo reports whether an owner reference names an object. Its uid may be that of an earlier object of the same name.
func refersTo(ref metav1.OwnerReference, obj metav1.Object, kind schema.GroupVersionKind) bool {
	return ref.APIVersion == kind.GroupVersion().String() && ref.Kind == kind.Kind && ref.Name == obj.GetName()
}
