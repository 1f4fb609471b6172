package deployment

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/dump"

	"skiff/internal/controller"
)

const hashLabel = appsv1.DefaultDeploymentUniqueLabelKey

// sameTemplate reports whether two templates are equal except for the pod-template-hash label.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	withoutHash := func(t corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
		if _, ok := t.Labels[hashLabel]; ok {
			t.Labels = maps.Clone(t.Labels)
			delete(t.Labels, hashLabel)
		}
		return &t
	}
	return equality.Semantic.DeepEqual(withoutHash(*a), withoutHash(*b))
}

// templateHash returns the pod-template-hash of a template, equal to upstream's to the last bit. collisions is how often another template had
// the same hash. The printed form that is hashed depends on how the template was decoded, so it is decoded from protobuf, as upstream's are.
func templateHash(t *corev1.PodTemplateSpec, collisions *int32) string {
	var read corev1.PodTemplateSpec
	if data, err := t.Marshal(); err != nil || read.Unmarshal(data) != nil {
		read = *t // cannot happen: it was encoded when it was stored
	}
	h := fnv.New32a()
	h.Write([]byte(dump.ForHash(read)))
	if collisions != nil {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(uint32(*collisions))))
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

// setName returns the name of a Deployment's ReplicaSet, shortened to the longest valid name.
func setName(deployment, hash string) string {
	most := validation.DNS1123SubdomainMaxLength - len(hash) - 1
	return deployment[:min(len(deployment), most)] + "-" + hash
}

// syncNew updates the annotations and minReadySeconds of the new ReplicaSet, if there is one, to the Deployment's.
func (p *plan) syncNew() {
	if p.new == nil {
		return
	}
	if annotations, ok := p.annotations(p.new.Annotations, p.nextRevision()); ok && !maps.Equal(annotations, p.new.Annotations) {
		p.change(p.new).Annotations = annotations
	}
	if p.new.Spec.MinReadySeconds != p.deployment.Spec.MinReadySeconds {
		p.change(p.new).Spec.MinReadySeconds = p.deployment.Spec.MinReadySeconds
	}
	annotate(&p.deployment.ObjectMeta, revisionAnnotation, p.new.Annotations[revisionAnnotation])
	if p.hasDeadline() && p.progress() == nil {
		p.setEarly(appsv1.DeploymentProgressing, corev1.ConditionTrue, "FoundNewReplicaSet", "Found new replica set %q", p.new.Name)
	}
}

// withNew goes on with next, after creating the new ReplicaSet if there is none.
func (p *plan) withNew(next func() controller.Decision) controller.Decision {
	if p.new != nil {
		return next()
	}
	rs := p.newSet()
	return controller.Decision{Actions: []controller.Action{controller.Create(rs)}, Then: func(err error) controller.Decision {
		if err != nil {
			return p.notCreated(rs, err)
		}
		p.new = &set{ReplicaSet: rs, isCopy: true}
		var events []controller.Action
		if size := *rs.Spec.Replicas; size > 0 {
			events = append(events, p.scaledEvent("up", rs.Name, 0, size))
		}
		annotate(&p.deployment.ObjectMeta, revisionAnnotation, rs.Annotations[revisionAnnotation])
		if p.hasDeadline() {
			p.setEarly(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetCreated", "Created new replica set %q", rs.Name)
		}
		decision := next()
		decision.Actions = append(events, decision.Actions...)
		return decision
	}}
}

// newSet returns the ReplicaSet of the current template.
func (p *plan) newSet() *appsv1.ReplicaSet {
	d := p.deployment
	template := *d.Spec.Template.DeepCopy()
	hash := templateHash(&template, d.Status.CollisionCount)
	template.Labels = withHash(template.Labels, hash)
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = withHash(selector.MatchLabels, hash)
	size := p.newSize(0)
	annotations, _ := p.annotations(nil, p.nextRevision())
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			// The name is derived from the template, so that creating it twice creates one.
			Name: setName(d.Name, hash), Namespace: d.Namespace, Labels: maps.Clone(template.Labels), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p.seen, kind)},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &size, MinReadySeconds: d.Spec.MinReadySeconds, Selector: selector, Template: template},
	}
	p.annotateSize(&set{ReplicaSet: rs, isCopy: true})
	return rs
}

// withHash returns a copy of labels with the template's hash.
func withHash(labels map[string]string, hash string) map[string]string {
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[hashLabel] = hash
	return labels
}

// notCreated returns what to do when creating the new ReplicaSet failed.
func (p *plan) notCreated(rs *appsv1.ReplicaSet, err error) controller.Decision {
	switch {
	case errors.Is(err, context.Canceled):
		return controller.Decision{Err: err} // the loop is being stopped
	case apierrors.IsAlreadyExists(err):
		existing := p.named(rs.Name)
		if existing == nil || metav1.IsControlledBy(existing, p.seen) && sameTemplate(&existing.Spec.Template, &p.deployment.Spec.Template) {
			return controller.Decision{Err: err} // it was created before: the caches will observe it
		}
		// Another template has the same hash, or the name is taken: the next reconcile tries another hash.
		collisions := int32(1)
		if before := p.deployment.Status.CollisionCount; before != nil {
			collisions += *before
		}
		p.deployment.Status.CollisionCount = &collisions
		return controller.Decision{Actions: []controller.Action{controller.UpdateStatus(p.deployment)}, Err: err}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return controller.Nothing // nothing can be created in a terminating namespace, and the Deployment will soon be deleted
	}
	event := p.event(corev1.EventTypeWarning, "ReplicaSetCreateError", "Failed to create new replica set %q: %v", rs.Name, err)
	actions := []controller.Action{event}
	if p.hasDeadline() {
		p.setEarly(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ReplicaSetCreateError", "Failed to create new replica set %q: %v", rs.Name, err)
		if p.statusChanged() {
			actions = append(actions, controller.UpdateStatus(p.deployment))
		}
	}
	return controller.Decision{Actions: actions, Err: err}
}

// notCopied holds the annotations of a Deployment that are not copied to its ReplicaSets.
var notCopied = map[string]bool{
	corev1.LastAppliedConfigAnnotation: true, revisionAnnotation: true, historyAnnotation: true,
	desiredAnnotation: true, maxAnnotation: true, appsv1.DeprecatedRollbackTo: true,
}

// annotations returns the annotations that the new ReplicaSet should have, given those it has. It returns false if its revision is not a number,
// and the annotations are best left alone.
func (p *plan) annotations(has map[string]string, revision int64) (map[string]string, bool) {
	out := maps.Clone(has)
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range p.deployment.Annotations {
		if !notCopied[k] {
			out[k] = v
		}
	}
	text, had := has[revisionAnnotation]
	before, err := strconv.ParseInt(cmp.Or(text, "0"), 10, 64)
	if err != nil {
		return nil, false
	}
	if before >= revision {
		return out, true // revisions after it were deleted
	}
	out[revisionAnnotation] = strconv.FormatInt(revision, 10)
	if had { // rolled back to: its former revision goes into the history
		if history, ok := extendHistory(has[historyAnnotation], text); ok {
			out[historyAnnotation] = history
		}
	}
	return out, true
}

// maxHistoryLength bounds the history annotation: about a hundred revisions, after which the oldest are dropped.
const maxHistoryLength = 2000

func extendHistory(history, revision string) (string, bool) {
	for history != "" {
		if len(history)+1+len(revision) <= maxHistoryLength {
			return history + "," + revision, true
		}
		_, history, _ = strings.Cut(history, ",")
	}
	return revision, len(revision) <= maxHistoryLength
}

func annotate(meta *metav1.ObjectMeta, key, value string) {
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Annotations[key] = value
}
