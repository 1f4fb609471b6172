package podsecurity

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"skiff/internal/apiserver/admission"
)

const (
	// maxPodsToCheck and maxTimeToCheck bound how many of a namespace's pods are checked against a new level, and for how long.
	maxPodsToCheck = 3000
	maxTimeToCheck = time.Second
)

// validateNamespace refuses invalid labels, unless they were there before, and warns of existing pods that violate a stricter level.
func (p *plugin) validateNamespace(ctx context.Context, a *admission.Attributes) error {
	namespace, ok := a.Object.(*corev1.Namespace)
	if !ok {
		return apierrors.NewBadRequest("failed to decode namespace")
	}
	after, errs := api.PolicyToEvaluate(namespace.Labels, p.config.defaults)
	if a.Operation == admission.Create {
		if len(errs) > 0 {
			return apierrors.NewInvalid(a.Info.GVK.GroupKind(), namespace.Name, errs)
		}
		p.warnOfExemption(a, namespace, after)
		return nil
	}
	old, ok := a.Old.(*corev1.Namespace)
	if !ok {
		return apierrors.NewBadRequest("failed to decode  old namespace")
	}
	before, oldErrs := api.PolicyToEvaluate(old.Labels, p.config.defaults)
	if len(errs) > 0 && !reflect.DeepEqual(errs, oldErrs) {
		return apierrors.NewInvalid(a.Info.GVK.GroupKind(), namespace.Name, errs)
	}
	if !stricter(after.Enforce, before.Enforce) {
		return nil
	}
	if p.config.namespaces[namespace.Name] {
		p.warnOfExemption(a, namespace, after)
		return nil
	}
	for _, warning := range p.checkPods(ctx, namespace.Name, after.Enforce) {
		a.Warn(warning)
	}
	return nil
}

// stricter reports whether the level after may forbid what the level before allowed.
func stricter(after, before api.LevelVersion) bool {
	switch {
	case after == before, after.Level == api.LevelPrivileged:
		return false
	case after.Version == before.Version:
		return api.CompareLevels(after.Level, before.Level) > 0
	}
	return true
}

// warnOfExemption warns that the labels of an exempt namespace have no effect.
func (p *plugin) warnOfExemption(a *admission.Attributes, namespace *corev1.Namespace, effective api.Policy) {
	if !p.config.namespaces[namespace.Name] || effective.FullyPrivileged() || effective.Equivalent(&p.config.defaults) {
		return
	}
	var modes []string
	add := func(mode string, level api.LevelVersion, levelLabel, versionLabel string) {
		_, hasLevel := namespace.Labels[levelLabel]
		_, hasVersion := namespace.Labels[versionLabel]
		if level.Level != api.LevelPrivileged && (hasLevel || hasVersion) {
			modes = append(modes, mode+"="+level.String())
		}
	}
	add("enforce", effective.Enforce, api.EnforceLevelLabel, api.EnforceVersionLabel)
	add("audit", effective.Audit, api.AuditLevelLabel, api.AuditVersionLabel)
	add("warn", effective.Warn, api.WarnLevelLabel, api.WarnVersionLabel)
	a.Warn(fmt.Sprintf("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored", namespace.Name, strings.Join(modes, ", ")))
}

// violators are the pods that violate a level for one reason.
type violators struct {
	first string // the first of the pods by name
	count int
}

// checkPods returns warnings that name the pods of a namespace that violate a level. maxPods and maxTime bound how many pods it checks.
func (p *plugin) checkPods(ctx context.Context, namespace string, level api.LevelVersion) []string {
	limit := p.maxTime
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)/2) // the rest is for the write itself
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found := p.podsToCheck(namespace)
	total := len(found)
	found = found[:min(total, p.maxPods)]
	checked := 0
	byReason := map[string]violators{}
	for _, pod := range found {
		if result := policy.AggregateCheckResults(p.evaluator().EvaluatePod(level, &pod.ObjectMeta, &pod.Spec)); !result.Allowed {
			v, known := byReason[result.ForbiddenReason()]
			if !known || pod.Name < v.first {
				v.first = pod.Name
			}
			v.count++
			byReason[result.ForbiddenReason()] = v
		}
		if checked++; ctx.Err() != nil {
			break
		}
	}
	var warnings, reasons []string
	if checked < total {
		warnings = append(warnings, fmt.Sprintf("new PodSecurity enforce level only checked against the first %d of %d existing pods", checked, total))
	}
	if len(byReason) > 0 {
		warnings = append(warnings, fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q", namespace, level.String()))
	}
	for reason, v := range byReason {
		reasons = append(reasons, v.String()+": "+reason)
	}
	slices.Sort(reasons)
	return append(warnings, reasons...)
}

// podsToCheck returns the pods of a namespace that are not exempt: one pod of each controller first, then the others, which are likely the same.
func (p *plugin) podsToCheck(namespace string) []*corev1.Pod {
	var first, others []*corev1.Pod
	seen := map[types.UID]bool{}
	for _, obj := range p.objects.List(pods, namespace) {
		pod, ok := obj.(*corev1.Pod)
		if !ok || pod.Spec.RuntimeClassName != nil && p.config.runtimeClasses[*pod.Spec.RuntimeClassName] {
			continue
		}
		controller := metav1.GetControllerOfNoCopy(pod)
		if controller != nil && seen[controller.UID] {
			others = append(others, pod)
			continue
		}
		if controller != nil {
			seen[controller.UID] = true
		}
		first = append(first, pod)
	}
	return append(first, others...)
}

func (v violators) String() string {
	switch v.count {
	case 1:
		return v.first
	case 2:
		return v.first + " (and 1 other pod)"
	default:
		return fmt.Sprintf("%s (and %d other pods)", v.first, v.count-1)
	}
}
