package resourceclaim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"skiff/internal/client"
	"skiff/internal/controller"
)

// claimQuery is a question to the API for a claim whose name a pod's status has and that the caches do not have: it may have been created just now.
type claimQuery struct {
	namespace, name string

	found bool
	err   error
}

// action returns the action that answers a query. It does not fail: the query holds the error.
func (q *claimQuery) action() controller.Action {
	return controller.Call(fmt.Sprintf("read ResourceClaim %s/%s", q.namespace, q.name), func(ctx context.Context, c *client.Client) error {
		_, q.err = c.Kubernetes().ResourceV1().ResourceClaims(q.namespace).Get(ctx, q.name, metav1.GetOptions{})
		q.found = q.err == nil
		if apierrors.IsNotFound(q.err) {
			q.err = nil
		}
		return nil
	})
}

// reconcilePod creates the claims that a pod lacks, notes their names, and reserves claims for a pod that was bound without the scheduler.
func (l *loop) reconcilePod(pod *corev1.Pod) controller.Decision {
	return l.createFrom(pod, 0, map[string]string{})
}

// createFrom creates the claims of a pod from the i-th on, one after the other, and then notes the names of those that were found or created.
func (l *loop) createFrom(pod *corev1.Pod, i int, names map[string]string) controller.Decision {
	for ; i < len(pod.Spec.ResourceClaims); i++ {
		wanted := &pod.Spec.ResourceClaims[i]
		name, mustOwn, err := resourceclaim.Name(pod, wanted)
		if err != nil && !errors.Is(err, resourceclaim.ErrClaimNotFound) {
			return fail(pod, wanted, fmt.Errorf("checking for claim before creating it: %w", err))
		}
		if wanted.ResourceClaimTemplateName == nil || err == nil && name == nil {
			continue // a person creates it, or it is not needed
		}
		if err == nil && mustOwn {
			if _, err := l.claims.ResourceClaims(pod.Namespace).Get(*name); err == nil {
				continue // if it is not the pod's, the pod waits until it has gone
			}
			q := &claimQuery{namespace: pod.Namespace, name: *name}
			return controller.Decision{Actions: []controller.Action{l.readClaim(q)}, Then: func(error) controller.Decision {
				if q.err != nil {
					return fail(pod, wanted, fmt.Errorf("checking claim existence: %w", q.err))
				}
				if q.found {
					return l.createFrom(pod, i+1, names)
				}
				return l.create(pod, i, names)
			}}
		}
		return l.create(pod, i, names)
	}
	if len(names) > 0 {
		return controller.Decision{Actions: []controller.Action{controller.Patch(pod, "status", types.StrategicMergePatchType, statusPatch(pod, names))}}
	}
	return l.reserve(pod)
}

// create finds or creates the i-th claim of a pod, and goes on.
func (l *loop) create(pod *corev1.Pod, i int, names map[string]string) controller.Decision {
	wanted := &pod.Spec.ResourceClaims[i]
	if claim := l.createdFor(pod, wanted.Name); claim != nil { // before its name could be noted
		names[wanted.Name] = claim.Name
		return l.createFrom(pod, i+1, names)
	}
	template, err := l.templates.ResourceClaimTemplates(pod.Namespace).Get(*wanted.ResourceClaimTemplateName)
	if err != nil {
		return fail(pod, wanted, fmt.Errorf("resource claim template %q: %w", *wanted.ResourceClaimTemplateName, err))
	}
	claim := claimFor(pod, wanted, template, func(name string) bool {
		_, err := l.claims.ResourceClaims(pod.Namespace).Get(name)
		return err == nil
	})
	return controller.Decision{Actions: []controller.Action{controller.Create(claim)}, Then: func(err error) controller.Decision {
		if err != nil {
			return fail(pod, wanted, fmt.Errorf("create ResourceClaim %s: %w", claim.Name, err))
		}
		names[wanted.Name] = claim.Name
		return l.createFrom(pod, i+1, names)
	}}
}

// createdFor returns the claim that was created for one of a pod's claims, or nil.
func (l *loop) createdFor(pod *corev1.Pod, name string) *resourcev1.ResourceClaim {
	found, _ := l.claimIndex.ByIndex(byPod, string(pod.UID)) // the only error is that the index is missing
	for _, obj := range found {
		if claim := obj.(*resourcev1.ResourceClaim); claim.Namespace == pod.Namespace && claim.Annotations[resourcev1.PodResourceClaimAnnotation] == name && claim.DeletionTimestamp == nil {
			return claim
		}
	}
	return nil
}

// maxBase is how long a generated name may be before its suffix.
const maxBase = 57

// claimFor returns the claim to create for a pod. taken reports whether a name is in use.
func claimFor(pod *corev1.Pod, wanted *corev1.PodResourceClaim, template *resourcev1.ResourceClaimTemplate, taken func(string) bool) *resourcev1.ResourceClaim {
	base := pod.Name + "-" + wanted.Name + "-"
	if n := len(base); n > maxBase { // shorten both, so that both are seen
		base = strings.TrimRight(pod.Name[:len(pod.Name)*maxBase/n], ".-") + "-" + wanted.Name[:len(wanted.Name)*maxBase/n]
	}
	name := ""
	for attempt := 0; name == "" || taken(name); attempt++ {
		h := fnv.New32a()
		fmt.Fprint(h, pod.UID, "/", wanted.Name, "/", attempt)
		suffix := rand.SafeEncodeString(fmt.Sprintf("%010d", h.Sum32()))
		name = base + suffix[len(suffix)-5:]
	}
	spec := template.Spec.DeepCopy()
	annotations := maps.Clone(spec.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[resourcev1.PodResourceClaimAnnotation] = wanted.Name
	yes := true
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: name, GenerateName: base, Labels: spec.Labels, Annotations: annotations,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &yes}}}, Spec: spec.Spec}
}

// statusPatch returns the patch that notes the names of generated claims in a pod's status.
func statusPatch(pod *corev1.Pod, names map[string]string) []byte {
	var statuses []map[string]string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		statuses = append(statuses, map[string]string{"name": name, "resourceClaimName": names[name]})
	}
	data, _ := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": map[string]any{"resourceClaimStatuses": statuses}}) // strings only
	return data
}

// reserve reserves allocated claims for a pod that is bound: the scheduler does it for the pods that it binds.
func (l *loop) reserve(pod *corev1.Pod) controller.Decision {
	if pod.Spec.NodeName == "" {
		return controller.Nothing
	}
	var actions []controller.Action
	for i := range pod.Spec.ResourceClaims {
		name, mustOwn, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue
		}
		claim, err := l.claims.ResourceClaims(pod.Namespace).Get(*name)
		if err != nil || mustOwn && resourceclaim.IsForPod(pod, claim, false) != nil {
			return controller.Decision{Actions: actions} // the pod waits for it
		}
		if claim.Status.Allocation == nil || resourceclaim.IsReservedForPod(pod, claim, false) {
			continue
		}
		changed := claim.DeepCopy()
		changed.Status.ReservedFor = append(changed.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		actions = append(actions, controller.UpdateStatus(changed))
	}
	return controller.Decision{Actions: actions}
}

// fail tells a pod why it has no claim, and tries again.
func fail(pod *corev1.Pod, wanted *corev1.PodResourceClaim, err error) controller.Decision {
	return controller.Decision{Actions: []controller.Action{controller.Event(pod, corev1.EventTypeWarning, "FailedResourceClaimCreation", "PodResourceClaim %s: %v", wanted.Name, err)},
		Err: fmt.Errorf("claim %s of the pod: %w", wanted.Name, err)}
}
