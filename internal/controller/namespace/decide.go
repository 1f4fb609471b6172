package namespace

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"skiff/internal/controller"
)

const (
	// firstSweep and lastSweep are the shortest and the longest time until a namespace with remaining content is swept again.
	firstSweep = 100 * time.Millisecond
	lastSweep  = 60 * time.Second
)

// decide returns what to do about a namespace after a sweep.
func decide(namespace *corev1.Namespace, found report, now time.Time) controller.Decision {
	clean := found.isClean()
	if clean && found.foundAny {
		return controller.Decision{RequeueAfter: settle} // objects kept coming during the sweep
	}
	updated := namespace.DeepCopy()
	updated.Status.Phase = corev1.NamespaceTerminating
	changed := setConditions(&updated.Status, found, now) || namespace.Status.Phase != updated.Status.Phase
	var after controller.Decision
	if !clean {
		after.RequeueAfter = requeueAfter(found, now.Sub(namespace.DeletionTimestamp.Time))
	}
	var action controller.Action
	switch {
	case changed: // the namespace is reconciled again when the cache has observed the update
		action = controller.UpdateStatus(updated)
		after.RequeueAfter = max(after.RequeueAfter, firstSweep)
	case clean:
		action = finalize(namespace)
	default:
		return after
	}
	return controller.Decision{Actions: []controller.Action{action}, Then: func(err error) controller.Decision {
		switch {
		case apierrors.IsNotFound(err):
			return controller.Nothing
		case err != nil:
			return controller.Decision{Err: err}
		}
		return after
	}}
}

// isClean reports whether nothing is left, as far as is known.
func (r report) isClean() bool { return r.discovery == nil && r.parsing == nil && len(r.remains) == 0 }

// requeueAfter returns the time until the next sweep of a namespace with remaining content. It grows with the age of the deletion.
func requeueAfter(found report, since time.Duration) time.Duration {
	longest, estimate := lastSweep, int64(0)
	failed := found.discovery != nil || found.parsing != nil
	for _, left := range found.remains {
		failed = failed || left.err != nil
		estimate = max(estimate, left.estimate)
	}
	if !failed {
		longest = min(longest, time.Duration(estimate/2+1)*time.Second)
	}
	return min(max(since/2, firstSweep), longest)
}

// healthy holds the conditions of a namespace whose deletion goes well, in upstream's order.
var healthy = []corev1.NamespaceCondition{
	{Type: corev1.NamespaceDeletionDiscoveryFailure, Reason: "ResourcesDiscovered", Message: "All resources successfully discovered"},
	{Type: corev1.NamespaceDeletionGVParsingFailure, Reason: "ParsedGroupVersions", Message: "All legacy kube types successfully parsed"},
	{Type: corev1.NamespaceDeletionContentFailure, Reason: "ContentDeleted", Message: "All content successfully deleted, may be waiting on finalization"},
	{Type: corev1.NamespaceContentRemaining, Reason: "ContentRemoved", Message: "All content successfully removed"},
	{Type: corev1.NamespaceFinalizersRemaining, Reason: "ContentHasNoFinalizers", Message: "All content-preserving finalizers finished"},
}

// setConditions sets the conditions from what a sweep found, and reports whether any changed.
func setConditions(status *corev1.NamespaceStatus, found report, now time.Time) (changed bool) {
	problems := map[corev1.NamespaceConditionType]corev1.NamespaceCondition{}
	problem := func(of corev1.NamespaceConditionType, reason, message string) {
		problems[of] = corev1.NamespaceCondition{Type: of, Status: corev1.ConditionTrue, Reason: reason, Message: message}
	}
	if found.discovery != nil {
		problem(corev1.NamespaceDeletionDiscoveryFailure, "DiscoveryFailed", discoveryMessage(found.discovery))
	}
	if found.parsing != nil {
		problem(corev1.NamespaceDeletionGVParsingFailure, "GroupVersionParsingFailed", found.parsing.Error())
	}
	if failures := failures(found); len(failures) > 0 {
		problem(corev1.NamespaceDeletionContentFailure, "ContentDeletionFailed",
			fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(failures), strings.Join(failures, ", ")))
	}
	// As upstream, these two conditions do not mention content while pods remain.
	if objects, finalizers := remainingContent(found); !podsRemain(found) {
		if len(objects) > 0 {
			problem(corev1.NamespaceContentRemaining, "SomeResourcesRemain", "Some resources are remaining: "+strings.Join(objects, ", "))
		}
		if len(finalizers) > 0 {
			problem(corev1.NamespaceFinalizersRemaining, "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "+strings.Join(finalizers, ", "))
		}
	}
	for _, condition := range healthy {
		condition.Status = corev1.ConditionFalse
		if p, ok := problems[condition.Type]; ok {
			condition = p
		}
		changed = setCondition(status, condition, now) || changed
	}
	return changed
}

func discoveryMessage(err error) string {
	var some *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &some) {
		return fmt.Sprintf("Discovery failed for some groups, %d failing: %v", len(some.Groups), err)
	}
	return err.Error()
}

// failures returns the errors of a sweep, sorted.
func failures(found report) []string {
	var out []string
	for _, left := range found.remains {
		if left.err != nil {
			out = append(out, left.err.Error())
		}
	}
	slices.Sort(out)
	return out
}

func podsRemain(found report) bool {
	return slices.ContainsFunc(found.remains, func(r remains) bool { return r.resource == pods && r.count > 0 })
}

// remainingContent describes the remaining objects of a namespace and their finalizers, sorted.
func remainingContent(found report) (objects, finalizers []string) {
	held := map[string]int{}
	for _, left := range found.remains {
		if left.count > 0 {
			objects = append(objects, fmt.Sprintf("%s.%s has %d resource instances", left.resource.Resource, left.resource.Group, left.count))
		}
		for finalizer, count := range left.finalizers {
			held[finalizer] += count
		}
	}
	for finalizer, count := range held {
		finalizers = append(finalizers, fmt.Sprintf("%s in %d resource instances", finalizer, count))
	}
	slices.Sort(objects)
	slices.Sort(finalizers)
	return objects, finalizers
}

// setCondition sets a condition and reports whether that changed it. lastTransitionTime changes only with the status.
func setCondition(status *corev1.NamespaceStatus, condition corev1.NamespaceCondition, now time.Time) bool {
	condition.LastTransitionTime = metav1.NewTime(now)
	i := slices.IndexFunc(status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == condition.Type })
	if i < 0 {
		status.Conditions = append(status.Conditions, condition)
		return true
	}
	was := status.Conditions[i]
	if was.Status == condition.Status {
		condition.LastTransitionTime = was.LastTransitionTime
	}
	status.Conditions[i] = condition
	return was.Status != condition.Status || was.Reason != condition.Reason || was.Message != condition.Message
}
