package pod

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

func validate(pod *corev1.Pod) field.ErrorList {
	root := check.At(nil)
	checkPod(root, pod, leniency{})
	spec := root.Child("spec")
	if len(pod.Spec.EphemeralContainers) > 0 {
		spec.Forbidden("ephemeralContainers", "cannot be set on create")
	}
	if pod.Spec.NodeName != "" && len(pod.Spec.SchedulingGates) > 0 {
		spec.Forbidden("nodeName", "cannot be set until all schedulingGates have been cleared")
	}
	checkProfilesAgree(spec, pod.Annotations, &pod.Spec)
	return root.Errors()
}

// checkPod applies the rules that must hold for a pod at any time.
func checkPod(root *check.Part, pod *corev1.Pod, allow leniency) {
	checkAnnotations(root.Child("metadata"), pod.Annotations, &pod.Spec, allow)
	p := root.Child("spec")
	checkSpec(p, &pod.Spec, &pod.ObjectMeta, allow)
	if pod.Spec.ServiceAccountName == "" {
		forbidTokens(p, pod.Spec.Volumes)
	}
	if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil {
		p.NonNegative("terminationGracePeriodSeconds", *grace)
	}
	for i := range pod.Spec.Containers {
		trimmedImage(p.Item("containers", i), &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		trimmedImage(p.Item("initContainers", i), &pod.Spec.InitContainers[i])
	}
}

// forbidTokens refuses tokens of a service account that the pod does not have.
func forbidTokens(p *check.Part, volumes []corev1.Volume) {
	for i := range volumes {
		if volumes[i].Projected == nil {
			continue
		}
		for j := range volumes[i].Projected.Sources {
			if volumes[i].Projected.Sources[j].ServiceAccountToken != nil {
				p.Item("volumes", i).Child("projected").Item("sources", j).
					Forbidden("serviceAccountToken", "must not be specified when serviceAccountName is not set")
			}
		}
	}
}

// changeable lists the fields of a pod that may change, for the message that refuses any other change. Negative grace
// periods became 1 when the old pod was read.
const changeable = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`," +
	"`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

func validateUpdate(new, old *corev1.Pod) field.ErrorList {
	return ratchet(&old.Spec, &old.ObjectMeta, func(allow leniency) field.ErrorList {
		root := check.At(nil)
		checkPod(root, new, allow)
		checkAnnotationChanges(root, new, old, allow)
		checkSpecChanges(root.Child("spec"), &new.Spec, &old.Spec, allow)
		return root.Errors()
	})
}

// initialize is for updates of a pod that still waits for its initializers: nothing has acted on it, so that it may change as a whole, such as by a sidecar.
func initialize(new, old *corev1.Pod) field.ErrorList {
	defaultPodLevelResources(new)
	new.Status.QOSClass = QOSClass(new)
	errs := validate(new)
	if _, mirror := new.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		if _, was := old.Annotations[corev1.MirrorPodAnnotationKey]; !was {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(corev1.MirrorPodAnnotationKey), "may not add mirror pod annotation"))
		}
	}
	return errs
}

// checkAnnotationChanges refuses changes of annotations that took effect when the pod was started.
func checkAnnotationChanges(root *check.Part, new, old *corev1.Pod, allow leniency) {
	p := root.Child("metadata")
	fixed := func(key, change string) {
		switch {
		case strings.HasPrefix(key, appArmorPrefix):
			p.Add(field.Forbidden(p.Path("annotations").Key(key), "may not "+change+" AppArmor annotations"))
		case key == corev1.MirrorPodAnnotationKey:
			p.Add(field.Forbidden(p.Path("annotations").Key(key), "may not "+change+" mirror pod annotation"))
		}
	}
	for key, before := range old.Annotations {
		if after, kept := new.Annotations[key]; !kept || after != before {
			fixed(key, "remove or update")
		}
	}
	for key := range new.Annotations {
		if _, known := old.Annotations[key]; !known {
			fixed(key, "add")
		}
	}
	checkAnnotations(p, new.Annotations, &new.Spec, allow)
}

// checkSpecChanges refuses changes of a spec other than the few that are allowed.
func checkSpecChanges(p *check.Part, new, old *corev1.PodSpec, allow leniency) {
	if !sameNumber(p, "containers", new.Containers, old.Containers) || !sameNumber(p, "initContainers", new.InitContainers, old.InitContainers) {
		return
	}
	if !deadlineChange(p, new.ActiveDeadlineSeconds, old.ActiveDeadlineSeconds) {
		return
	}
	tolerationChange(p, new.Tolerations, old.Tolerations, allow)
	gateChange(p, new.SchedulingGates, old.SchedulingGates)
	if apiequality.Semantic.DeepEqual(new, old) {
		return
	}
	rest := *new
	rest.Containers = withImagesOf(old.Containers, new.Containers)
	rest.InitContainers = withImagesOf(old.InitContainers, new.InitContainers)
	rest.ActiveDeadlineSeconds = old.ActiveDeadlineSeconds
	rest.SchedulingGates = old.SchedulingGates
	rest.Tolerations = old.Tolerations
	if len(old.SchedulingGates) > 0 {
		gatedChange(p, &rest, old)
	}
	if !apiequality.Semantic.DeepEqual(&rest, old) {
		p.Forbidden("", fmt.Sprintf("pod updates may not change fields other than %s\n%v", changeable, diff.Diff(check.Internal(*old), check.Internal(rest))))
	}
}

func sameNumber(p *check.Part, name string, new, old []corev1.Container) bool {
	if len(new) != len(old) {
		p.Forbidden(name, "pod updates may not add or remove containers")
		return false
	}
	for i := range new {
		at := p.Item(name, i)
		at.Present("image", new[i].Image != "", "")
		trimmedImage(at, &new[i])
	}
	return true
}

func withImagesOf(old, new []corev1.Container) []corev1.Container {
	list := append([]corev1.Container(nil), new...)
	for i := range list {
		list[i].Image = old[i].Image
	}
	return list
}

// deadlineChange allows a deadline to be set or shortened. It reports whether to go on.
func deadlineChange(p *check.Part, new, old *int64) bool {
	switch {
	case new == nil && old != nil:
		p.Invalid("activeDeadlineSeconds", new, "must not update from a positive integer to nil value")
	case new == nil:
	case *new < 0 || *new > math.MaxInt32:
		p.Invalid("activeDeadlineSeconds", *new, utilvalidation.InclusiveRangeError(0, math.MaxInt32))
		return false
	case old != nil && *old < *new:
		p.Invalid("activeDeadlineSeconds", *new, "must be less than or equal to previous value")
		return false
	}
	return true
}

// tolerationChange allows tolerations to be added, and tolerationSeconds of existing ones to change.
func tolerationChange(p *check.Part, new, old []corev1.Toleration, allow leniency) {
	for _, t := range old {
		kept := slices.ContainsFunc(new, func(n corev1.Toleration) bool {
			return n.Key == t.Key && n.Operator == t.Operator && n.Value == t.Value && n.Effect == t.Effect
		})
		if !kept {
			p.Forbidden("tolerations", "existing toleration can not be modified except its tolerationSeconds")
			return
		}
	}
	checkTolerations(p, "tolerations", new, allow.comparingTolerations)
}

func gateChange(p *check.Part, new, old []corev1.PodSchedulingGate) {
	for i, gate := range new {
		if !slices.Contains(old, gate) && !slices.Contains(new[i+1:], gate) {
			p.Item("schedulingGates", i).Forbidden("name", fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name))
		}
	}
}

// gatedChange allows a pod with scheduling gates to restrict its nodes further. It restores the fields that it has
// validated in new.
func gatedChange(p *check.Part, new, old *corev1.PodSpec) {
	for key, value := range old.NodeSelector {
		if got, found := new.NodeSelector[key]; !found || got != value {
			p.Invalid("nodeSelector", new.NodeSelector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)")
			break
		}
	}
	new.NodeSelector = old.NodeSelector
	before, after := nodeAffinityOf(old), nodeAffinityOf(new)
	if apiequality.Semantic.DeepEqual(after, before) {
		return
	}
	nodeAffinityChange(p.Child("affinity").Child("nodeAffinity").Child("requiredDuringSchedulingIgnoredDuringExecution"), after, before)
	switch {
	case new.Affinity == nil:
		new.Affinity = &corev1.Affinity{NodeAffinity: before}
	case old.Affinity == nil && new.Affinity.PodAffinity == nil && new.Affinity.PodAntiAffinity == nil:
		new.Affinity = nil
	default:
		affinity := *new.Affinity
		affinity.NodeAffinity = before
		new.Affinity = &affinity
	}
}

func nodeAffinityOf(spec *corev1.PodSpec) *corev1.NodeAffinity {
	if spec.Affinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity
}

func requiredNodeTerms(a *corev1.NodeAffinity) []corev1.NodeSelectorTerm {
	if a == nil || a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// nodeAffinityChange allows requirements to be added to each term. Terms are alternatives: one more would match more nodes.
func nodeAffinityChange(p *check.Part, new, old *corev1.NodeAffinity) {
	after, before := requiredNodeTerms(new), requiredNodeTerms(old)
	if len(before) > 0 && len(before) != len(after) {
		p.Invalid("nodeSelectorTerms", check.Internal(after), "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
		return
	}
	for i := range before {
		if !onlyAdds(after[i], before[i]) {
			p.Add(field.Invalid(p.Path("nodeSelectorTerms").Index(i), check.Internal(after[i]), "only additions are allowed (no mutations or deletions)"))
		}
	}
}

func onlyAdds(new, old corev1.NodeSelectorTerm) bool {
	if len(old.MatchExpressions)+len(old.MatchFields) == 0 { // an empty term matches nothing, and must not change that
		return len(new.MatchExpressions)+len(new.MatchFields) == 0
	}
	return startsWith(new.MatchExpressions, old.MatchExpressions) && startsWith(new.MatchFields, old.MatchFields)
}

func startsWith(new, old []corev1.NodeSelectorRequirement) bool {
	return len(new) >= len(old) && apiequality.Semantic.DeepEqual(new[:len(old)], old)
}

func validateEphemeralContainers(new, old *corev1.Pod) field.ErrorList {
	if isMirror(old.Annotations) {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	return ratchet(&old.Spec, &old.ObjectMeta, func(allow leniency) field.ErrorList {
		root := check.At(nil)
		checkPod(root, new, allow)
		checkAnnotationChanges(root, new, old, allow)
		p := root.Child("spec")
		for i := range old.Spec.EphemeralContainers {
			before := &old.Spec.EphemeralContainers[i]
			switch after := ephemeralContainer(&new.Spec, before.Name); {
			case after == nil:
				p.Forbidden("ephemeralContainers", fmt.Sprintf("existing ephemeral containers %q may not be removed\n", before.Name))
			case !apiequality.Semantic.DeepEqual(before, after):
				p.Forbidden("ephemeralContainers", fmt.Sprintf("existing ephemeral containers %q may not be changed\n%v",
					before.Name, diff.Diff(check.Internal(*before), check.Internal(*after))))
			}
		}
		return root.Errors()
	})
}

// ephemeralContainer returns the last ephemeral container of a name, nil if there is none.
func ephemeralContainer(spec *corev1.PodSpec, name string) *corev1.EphemeralContainer {
	for i := len(spec.EphemeralContainers) - 1; i >= 0; i-- {
		if spec.EphemeralContainers[i].Name == name {
			return &spec.EphemeralContainers[i]
		}
	}
	return nil
}
