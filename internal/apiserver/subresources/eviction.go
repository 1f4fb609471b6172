package subresources

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/request"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/catalog"
	"skiff/internal/catalog/pod"
)

var evictionKind = policyv1.SchemeGroupVersion.WithKind("Eviction")

// evict deletes a pod, unless a PodDisruptionBudget does not allow it: POST pods/NAME/eviction.
func (h *handlers) evict(rq *verbs.Request) error {
	if err := requireCreate(rq); err != nil {
		return err
	}
	eviction := &policyv1.Eviction{}
	opts, err := decodeAndAdmit(rq, eviction, evictionKind, policyv1beta1.SchemeGroupVersion.WithKind("Eviction"))
	if err != nil {
		return err
	}
	if eviction.Name != rq.Route.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	deleteOptions, err := evictionOptions(eviction, rq.Query["dryRun"])
	if err != nil {
		return err
	}
	if err := validateAdmission(rq, eviction, opts); err != nil {
		return err
	}
	e := &evictor{rq: rq, pods: rq.Endpoint.Registry, budgets: h.API.Endpoint("policy", "v1", "poddisruptionbudgets"), options: deleteOptions}
	if err := e.evict(); err != nil {
		return err
	}
	return sendSuccess(rq)
}

// evictionOptions returns the options with which the pod is to be deleted. dryRun may be set there, in the request, or equally in both.
func evictionOptions(e *policyv1.Eviction, dryRun []string) (*metav1.DeleteOptions, error) {
	deleteOptions := e.DeleteOptions
	if deleteOptions == nil {
		return &metav1.DeleteOptions{DryRun: dryRun}, nil
	}
	if ptr.Deref(deleteOptions.IgnoreStoreReadErrorWithClusterBreakingPotential, false) {
		return nil, apierrors.NewInvalid(evictionKind.GroupKind(), e.Name, field.ErrorList{
			field.Invalid(field.NewPath("deleteOptions").Child("ignoreStoreReadErrorWithClusterBreakingPotential"), true,
				"can not be set for pod eviction, try after removing the option")})
	}
	switch {
	case len(deleteOptions.DryRun) == 0:
		deleteOptions.DryRun = dryRun
	case len(dryRun) > 0 && !slices.Equal(dryRun, deleteOptions.DryRun):
		return nil, fmt.Errorf("Non-matching dry-run options in request and content: %v and %v", dryRun, deleteOptions.DryRun)
	}
	if errs := validation.ValidateDeleteOptions(deleteOptions); len(errs) > 0 {
		return nil, apierrors.NewInvalid(request.MetaKind("DeleteOptions"), "", errs)
	}
	return deleteOptions, nil
}

// evictor serves one eviction.
type evictor struct {
	rq      *verbs.Request
	pods    *registry.Registry
	budgets *verbs.Endpoint
	options *metav1.DeleteOptions // of the client
}

const (
	// maxEvictionTries bounds how often an eviction is tried that conflicts with updates of the pod.
	maxEvictionTries = 20
	// maxDisruptedPods bounds the evictions of a budget that the disruption controller has not observed yet.
	maxDisruptedPods = 2000
)

// evict deletes the pod if no budget protects it, or its budget allows it.
func (e *evictor) evict() error {
	for try := 1; ; try++ {
		p, err := e.pod()
		if err != nil {
			return err
		}
		if !canIgnorePDB(p) {
			return e.evictWithinBudget(p)
		}
		deleteOptions := e.options
		if p.Status.Phase == corev1.PodPending && p.DeletionTimestamp == nil {
			deleteOptions = e.atVersionOf(p) // a pod that becomes ready meanwhile must not be deleted
		}
		err = e.delete(deleteOptions)
		if !apierrors.IsConflict(err) || hasResourceVersion(e.options) || try == maxEvictionTries {
			return err
		}
	}
}

func (e *evictor) pod() (*corev1.Pod, error) {
	it, err := e.pods.Get(e.rq.Ctx, e.rq.Route.Namespace, e.rq.Route.Name, "")
	if err != nil {
		return nil, err
	}
	obj, err := e.pods.Decode(it)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Pod), nil
}

// canIgnorePDB reports whether no budget protects a pod: it is terminal, pending or being deleted.
func canIgnorePDB(p *corev1.Pod) bool {
	switch p.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return true
	}
	return p.DeletionTimestamp != nil
}

// hasResourceVersion reports whether the options have a resourceVersion as precondition.
func hasResourceVersion(o *metav1.DeleteOptions) bool {
	return o.Preconditions != nil && o.Preconditions.ResourceVersion != nil
}

// atVersionOf returns the client's options with the resourceVersion of the pod as precondition, unless they have one.
func (e *evictor) atVersionOf(p *corev1.Pod) *metav1.DeleteOptions {
	if hasResourceVersion(e.options) {
		return e.options
	}
	return withVersion(e.options, p.ResourceVersion)
}

// withVersion returns a copy of the options that has a resourceVersion as precondition.
func withVersion(o *metav1.DeleteOptions, version string) *metav1.DeleteOptions {
	o = o.DeepCopy()
	if o.Preconditions == nil {
		o.Preconditions = &metav1.Preconditions{}
	}
	o.Preconditions.ResourceVersion = &version
	return o
}

// evictWithinBudget evicts a pod if its PodDisruptionBudget, if it has one, allows it.
func (e *evictor) evictWithinBudget(p *corev1.Pod) error {
	budgets, err := e.budgetsFor(p)
	if err != nil {
		return err
	}
	switch len(budgets) {
	case 0:
		return e.delete(e.options)
	case 1:
	default:
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}}
	}
	budget := budgets[0]
	if !mayEvictUnhealthy(p, budget) {
		if err := e.take(budget.Name); err != nil {
			return err
		}
		return e.delete(e.options)
	}
	err = e.delete(withVersion(e.options, p.ResourceVersion)) // a pod that becomes ready meanwhile must not be deleted
	if apierrors.IsConflict(err) && !hasResourceVersion(e.options) {
		return budgetNotObserved(budget.Name)
	}
	return err
}

// budgetsFor returns the budgets whose selector matches the pod.
func (e *evictor) budgetsFor(p *corev1.Pod) ([]*policyv1.PodDisruptionBudget, error) {
	page, err := e.budgets.Registry.List(e.rq.Ctx, registry.List{Selector: registry.Selector{Namespace: p.Namespace}})
	if err != nil {
		return nil, err
	}
	var budgets []*policyv1.PodDisruptionBudget
	for _, it := range page.Items {
		obj, err := e.budgets.Registry.Decode(it)
		if err != nil {
			return nil, err
		}
		budget := obj.(*policyv1.PodDisruptionBudget)
		if selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector); err == nil && selector.Matches(labels.Set(p.Labels)) {
			budgets = append(budgets, budget)
		}
	}
	return budgets, nil
}

// mayEvictUnhealthy reports whether a pod is not ready, so that its eviction is no disruption, and the unhealthyPodEvictionPolicy of the budget allows
// evicting it: always, or while enough other pods are healthy.
func mayEvictUnhealthy(p *corev1.Pod, b *policyv1.PodDisruptionBudget) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return false
		}
	}
	return ptr.Deref(b.Spec.UnhealthyPodEvictionPolicy, policyv1.IfHealthyBudget) == policyv1.AlwaysAllow ||
		b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// take decrements the allowed disruptions of a budget and records the pod in its disruptedPods, for the disruption controller.
func (e *evictor) take(name string) error {
	manager, err := e.budgets.Manager("status")
	if err != nil {
		return err
	}
	_, _, err = e.budgets.Registry.Update(e.rq.Ctx, registry.Update{Namespace: e.rq.Route.Namespace, Name: name, Edit: e.budgets.Info.Status,
		Write: e.rq.RegistryWrite(request.DryRun(e.options.DryRun), nil),
		Transform: func(_ context.Context, current catalog.Object) (catalog.Object, error) {
			live := current.(*policyv1.PodDisruptionBudget)
			if err := checkBudget(live); err != nil {
				return nil, err
			}
			budget := live.DeepCopy()
			recordDisruption(budget, e.rq.Route.Name, time.Now())
			manager.Update(live, budget, "kube-apiserver")
			return budget, nil
		}})
	if apierrors.IsConflict(err) {
		return apierrors.NewTimeoutError(fmt.Sprintf("couldn't update PodDisruptionBudget %q due to conflicts", name), 10)
	}
	return err
}

// checkBudget returns why a budget allows no disruption now, or nil.
func checkBudget(b *policyv1.PodDisruptionBudget) error {
	budget := schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"}
	switch {
	case b.Status.ObservedGeneration < b.Generation:
		return budgetNotObserved(b.Name)
	case b.Status.DisruptionsAllowed < 0:
		return withBudgetCause(apierrors.NewForbidden(budget, b.Name, errors.New("pdb disruptions allowed is negative")),
			fmt.Sprintf("The disruption budget %s does not allow evicting pods currently: pdb disruptions allowed is negative", b.Name))
	case len(b.Status.DisruptedPods) > maxDisruptedPods:
		return withBudgetCause(apierrors.NewForbidden(budget, b.Name, errors.New("DisruptedPods map too big - too many evictions not confirmed by PDB controller")),
			fmt.Sprintf("The disruption budget %s does not allow evicting pods currently: too many pending evictions not confirmed by PDB controller", b.Name))
	case b.Status.DisruptionsAllowed == 0:
		return withBudgetCause(apierrors.NewTooManyRequests(wouldViolateBudget, 0), exhaustedMessage(b))
	}
	return nil
}

const wouldViolateBudget = "Cannot evict pod as it would violate the pod's disruption budget."

// budgetNotObserved is the error while the disruption controller has not observed the latest spec of a budget.
func budgetNotObserved(name string) error {
	return withBudgetCause(apierrors.NewTooManyRequests(wouldViolateBudget, 10), fmt.Sprintf("The disruption budget %s is still being processed by the server.", name))
}

func withBudgetCause(err *apierrors.StatusError, message string) error {
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: message})
	return err
}

// exhaustedMessage explains why a budget allows no disruption.
func exhaustedMessage(b *policyv1.PodDisruptionBudget) string {
	condition := apimeta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	explained := condition != nil && condition.Status == metav1.ConditionFalse && condition.Message != ""
	switch {
	case explained && condition.Reason == policyv1.SyncFailedReason:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s", b.Name, condition.Message)
	case b.Status.CurrentHealthy <= b.Status.DesiredHealthy:
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy)
	case explained:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently (%s): %s", b.Name, condition.Reason, condition.Message)
	}
	return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name)
}

// recordDisruption records in the status of a budget that a pod is about to be deleted.
func recordDisruption(b *policyv1.PodDisruptionBudget, podName string, now time.Time) {
	b.Status.DisruptionsAllowed--
	if b.Status.DisruptionsAllowed == 0 {
		apimeta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
			Reason: policyv1.InsufficientPodsReason, ObservedGeneration: b.Status.ObservedGeneration})
	}
	if b.Status.DisruptedPods == nil {
		b.Status.DisruptedPods = map[string]metav1.Time{}
	}
	b.Status.DisruptedPods[podName] = metav1.NewTime(now)
}

// delete adds the condition DisruptionTarget to the pod and deletes it.
func (e *evictor) delete(deleteOptions *metav1.DeleteOptions) error {
	rt, dry := e.rq.Route, request.DryRun(deleteOptions.DryRun)
	if !dry {
		it, _, err := e.pods.Update(e.rq.Ctx, registry.Update{Namespace: rt.Namespace, Name: rt.Name, Edit: e.pods.Info.Status, Write: e.rq.RegistryWrite(false, nil),
			Transform: func(_ context.Context, current catalog.Object) (catalog.Object, error) {
				p := current.(*corev1.Pod)
				if err := checkPreconditions(p, deleteOptions.Preconditions); err != nil {
					return nil, err
				}
				pod.SetCondition(&p.Status, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
					Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting"}, time.Now())
				return p, nil
			}})
		if err != nil {
			return err
		}
		if hasResourceVersion(deleteOptions) {
			deleteOptions = withVersion(deleteOptions, strconv.FormatInt(it.Revision, 10))
		}
	}
	it, _, err := e.pods.Delete(e.rq.Ctx, rt.Namespace, rt.Name, deleteOptions, e.rq.RegistryWrite(dry, nil))
	if err == nil {
		e.rq.RecordWrite(it, dry)
	}
	return err
}

// checkPreconditions refuses to evict a pod that has another UID or resourceVersion than the preconditions.
func checkPreconditions(p *corev1.Pod, only *metav1.Preconditions) error {
	resource := schema.GroupResource{Resource: "Pod"}
	switch {
	case only == nil:
	case only.UID != nil && *only.UID != "" && *only.UID != p.UID:
		return apierrors.NewConflict(resource, p.Name,
			fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *only.UID, p.UID))
	case only.ResourceVersion != nil && *only.ResourceVersion != "" && *only.ResourceVersion != p.ResourceVersion:
		return apierrors.NewConflict(resource, p.Name,
			fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *only.ResourceVersion, p.ResourceVersion))
	}
	return nil
}
