package resourceclaim

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// podPrefix tells the keys of pods from those of claims.
const podPrefix = "pods/"

// The indexes of pods by the claims that they have and by the templates that they have claims from, and of claims by the uid of the pod that they are for.
const (
	byClaim    = "resourceclaim.claim"
	byTemplate = "resourceclaim.template"
	byPod      = "resourceclaim.pod"
)

// loop reads the caches.
type loop struct {
	pods      corelisters.PodLister
	claims    resourcelisters.ResourceClaimLister
	templates resourcelisters.ResourceClaimTemplateLister

	podIndex, claimIndex cache.Indexer
	// readPod and readClaim return actions that ask the API for what the caches do not have. The actions do not fail: the query holds the error.
	readPod   func(*podQuery) controller.Action
	readClaim func(*claimQuery) controller.Action
}

// New returns the loop. Its keys are ResourceClaims, and pods with claims.
func New(deps controller.Deps) controller.Loop { return newLoop(deps).declaration(deps) }

func newLoop(deps controller.Deps) *loop {
	pods, resources := deps.Informers.Core().V1().Pods(), deps.Informers.Resource().V1()
	addIndexers(pods.Informer(), cache.Indexers{byClaim: indexPods(claimNames), byTemplate: indexPods(templateNames)})
	addIndexers(resources.ResourceClaims().Informer(), cache.Indexers{byPod: func(obj any) ([]string, error) {
		if claim, ok := obj.(*resourcev1.ResourceClaim); ok {
			if owner := owningPod(claim); owner != nil {
				return []string{string(owner.UID)}, nil
			}
		}
		return nil, nil
	}})
	return &loop{pods: pods.Lister(), claims: resources.ResourceClaims().Lister(), templates: resources.ResourceClaimTemplates().Lister(),
		podIndex: pods.Informer().GetIndexer(), claimIndex: resources.ResourceClaims().Informer().GetIndexer(), readPod: (*podQuery).action, readClaim: (*claimQuery).action}
}

func (l *loop) declaration(deps controller.Deps) controller.Loop {
	resources := deps.Informers.Resource().V1()
	return controller.Loop{Name: "resourceclaim-controller", ServiceAccount: "resource-claim-controller", EventSource: "resource_claim", QueueName: "resource_claim", Reconcile: l.reconcile,
		Watch: []controller.Watch{
			{Informer: deps.Informers.Core().V1().Pods().Informer(), Type: &corev1.Pod{}, Keys: podKeys},
			{Informer: resources.ResourceClaims().Informer(), Type: &resourcev1.ResourceClaim{}, Keys: l.claimKeys},
			{Informer: resources.ResourceClaimTemplates().Informer(), Keys: l.templateKeys},
		}}
}

func addIndexers(informer cache.SharedIndexInformer, indexers cache.Indexers) {
	for name := range indexers {
		if informer.GetIndexer().GetIndexers()[name] != nil {
			return
		}
	}
	if err := informer.AddIndexers(indexers); err != nil {
		panic(fmt.Sprintf("adding the indexes of the resourceclaim loop: %v", err)) // only if the informer has stopped
	}
}

// indexPods returns an index function of pods by names of objects in their namespace.
func indexPods(names func(*corev1.Pod) []string) cache.IndexFunc {
	return func(obj any) (keys []string, _ error) {
		if pod, ok := obj.(*corev1.Pod); ok {
			for _, name := range names(pod) {
				keys = append(keys, controller.Key{Namespace: pod.Namespace, Name: name}.String())
			}
		}
		return keys, nil
	}
}

// claimNames returns the names of the claims that a pod has, as far as they exist.
func claimNames(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.ResourceClaims {
		if name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i]); err == nil && name != nil {
			names = append(names, *name)
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil { // the scheduler created it
		names = append(names, s.ResourceClaimName)
	}
	return names
}

func templateNames(pod *corev1.Pod) (names []string) {
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimTemplateName != nil {
			names = append(names, *c.ResourceClaimTemplateName)
		}
	}
	return names
}

// owningPod returns the reference of a claim to the pod that it was created for, or nil.
func owningPod(claim *resourcev1.ResourceClaim) *metav1.OwnerReference {
	if ref := metav1.GetControllerOfNoCopy(claim); ref != nil && ref.APIVersion == "v1" && ref.Kind == "Pod" {
		return ref
	}
	return nil
}

// isDone reports whether no container of a pod runs or will.
func isDone(pod *corev1.Pod) bool {
	return owned.Terminal(pod) || pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}

// podKeys returns the claims of a pod that needs them no more, or the key of a pod that needs claims.
func podKeys(before, after metav1.Object) (keys []controller.Key) {
	was, _ := before.(*corev1.Pod)
	pod, _ := after.(*corev1.Pod)
	if was != nil && (pod == nil || pod.UID != was.UID) {
		keys = append(keys, claimKeysOf(was)...)
	}
	switch {
	case pod == nil:
	case isDone(pod):
		keys = append(keys, claimKeysOf(pod)...)
	case pod.DeletionTimestamp == nil && len(pod.Spec.ResourceClaims) > 0:
		keys = append(keys, podKey(pod))
	}
	return keys
}

func podKey(pod *corev1.Pod) controller.Key {
	return controller.Key{Namespace: pod.Namespace, Name: podPrefix + pod.Name}
}

func claimKeysOf(pod *corev1.Pod) (keys []controller.Key) {
	for _, name := range claimNames(pod) {
		keys = append(keys, controller.Key{Namespace: pod.Namespace, Name: name})
	}
	return keys
}

// claimKeys returns the key of a claim, and those of the pods that have it.
func (l *loop) claimKeys(before, after metav1.Object) (keys []controller.Key) {
	claim := before
	if after != nil {
		claim = after
		keys = append(keys, controller.KeyOf(claim))
	}
	return append(keys, l.podsBy(byClaim, claim)...)
}

// templateKeys returns the pods that wait for a template.
func (l *loop) templateKeys(_, after metav1.Object) []controller.Key {
	if after == nil {
		return nil
	}
	return l.podsBy(byTemplate, after)
}

func (l *loop) podsBy(index string, obj metav1.Object) (keys []controller.Key) {
	found, _ := l.podIndex.ByIndex(index, controller.KeyOf(obj).String()) // the only error is that the index is missing
	for _, p := range found {
		if pod := p.(*corev1.Pod); pod.DeletionTimestamp == nil && !owned.Terminal(pod) {
			keys = append(keys, podKey(pod))
		}
	}
	return keys
}

func (l *loop) reconcile(key controller.Key, _ time.Time) controller.Decision {
	if name, ok := strings.CutPrefix(key.Name, podPrefix); ok {
		pod, err := l.pods.Pods(key.Namespace).Get(name)
		if err != nil || pod.DeletionTimestamp != nil || owned.Terminal(pod) {
			return controller.Nothing
		}
		return l.reconcilePod(pod)
	}
	claim, err := l.claims.ResourceClaims(key.Namespace).Get(key.Name)
	if err != nil {
		return controller.Nothing // it has been deleted
	}
	return l.reconcileClaim(claim)
}
