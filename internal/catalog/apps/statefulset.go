package apps

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/pod"
	"skiff/internal/catalog/volume"
	"skiff/internal/catalog/workload"
)

var StatefulSet = catalog.Resource[appsv1.StatefulSet]{
	Group: "apps", Version: "v1", Kind: "StatefulSet", Plural: "statefulsets",
	Short: []string{"sts"}, Categories: []string{"all"}, Namespaced: true,
	// A DNS label, because the names of its pods are their host names.
	Name:                validation.NameIsDNSLabel,
	UnconditionalUpdate: true,
	Default:             defaultStatefulSet,
	PrepareCreate:       func(s *appsv1.StatefulSet, _ catalog.Request) { pod.PrepareTemplate(&s.Spec.Template) },
	PrepareUpdate:       func(new, _ *appsv1.StatefulSet) { pod.PrepareTemplate(&new.Spec.Template) },
	Changed:             catalog.SpecChanged[appsv1.StatefulSet],
	Validate: func(s *appsv1.StatefulSet) field.ErrorList {
		return validateStatefulSet(&s.Spec, statefulSetRules{claims: true, template: true}).Errors()
	},
	ValidateUpdate: validateStatefulSetUpdate,
	Warnings:       statefulSetWarnings,
	Status:         &catalog.Edit[appsv1.StatefulSet]{ValidateUpdate: validateStatefulSetStatus},
	Scale: &catalog.Scale[appsv1.StatefulSet]{
		Get: func(s *appsv1.StatefulSet) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus) {
			return scaleOf(s.Spec.Replicas, s.Status.Replicas, s.Spec.Selector)
		},
		Set: func(s *appsv1.StatefulSet, replicas int32) { s.Spec.Replicas = &replicas },
	},
	Columns:  statefulSetColumns(),
	Complete: true,
}

func defaultStatefulSet(set *appsv1.StatefulSet) {
	s := &set.Spec
	pod.DefaultTemplate(&s.Template)
	for i := range s.VolumeClaimTemplates {
		claim := &s.VolumeClaimTemplates[i]
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
		volume.DefaultClaim(claim)
	}
	if s.PodManagementPolicy == "" {
		s.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}
	if s.UpdateStrategy.Type == "" {
		s.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		fill(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if r := s.UpdateStrategy.RollingUpdate; r != nil {
		fill(&r.Partition, 0) // also where it is not allowed: upstream has no way to leave it out
		if s.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
			fill(&r.MaxUnavailable, intstr.FromInt32(1))
		}
	}
	fill(&s.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	for _, policy := range []*appsv1.PersistentVolumeClaimRetentionPolicyType{
		&s.PersistentVolumeClaimRetentionPolicy.WhenDeleted, &s.PersistentVolumeClaimRetentionPolicy.WhenScaled} {
		if *policy == "" {
			*policy = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
		}
	}
	fill(&s.Replicas, 1)
	fill(&s.RevisionHistoryLimit, 10)
}

// statefulSetRules select the rules that apply; an update skips those for fields that can no longer be corrected.
type statefulSetRules struct {
	claims      bool // volumeClaimTemplates and serviceName: immutable, and once less strictly checked
	template    bool
	oldTemplate *corev1.PodTemplateSpec
}

func validateStatefulSetUpdate(new, old *appsv1.StatefulSet) field.ErrorList {
	rules := statefulSetRules{template: true, oldTemplate: &old.Spec.Template}
	rules.template = len(validateStatefulSet(&old.Spec, rules).Errors()) == 0
	spec := validateStatefulSet(&new.Spec, rules)
	n, o := &new.Spec, &old.Spec
	spec.Immutable("selector", n.Selector, o.Selector)
	spec.Immutable("volumeClaimTemplates", n.VolumeClaimTemplates, o.VolumeClaimTemplates)
	spec.Immutable("serviceName", n.ServiceName, o.ServiceName)
	spec.Immutable("podManagementPolicy", n.PodManagementPolicy, o.PodManagementPolicy)
	return spec.Errors()
}

func validateStatefulSet(s *appsv1.StatefulSetSpec, rules statefulSetRules) *check.Part {
	spec := check.At(field.NewPath("spec"))
	if p := s.PodManagementPolicy; p != appsv1.OrderedReadyPodManagement && p != appsv1.ParallelPodManagement {
		spec.Invalid("podManagementPolicy", p, "must be 'OrderedReady' or 'Parallel'")
	}
	validateStatefulSetStrategy(spec, &s.UpdateStrategy)
	retention := spec.Child("persistentVolumeClaimRetentionPolicy")
	for name, policy := range statefulSetRetention(s.PersistentVolumeClaimRetentionPolicy) {
		check.OneOf(retention, name, policy,
			appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType)
	}
	if rules.claims {
		for i := range s.VolumeClaimTemplates {
			claim := spec.Item("volumeClaimTemplates", i)
			claim.Add(volume.ValidateClaimSpec(&s.VolumeClaimTemplates[i].Spec, claim.Path("spec"))...)
		}
	}
	check.NonNegativeIfSet(spec, "replicas", s.Replicas)
	spec.NonNegative("minReadySeconds", int64(s.MinReadySeconds))
	if s.Ordinals != nil {
		spec.NonNegative("ordinals.start", int64(s.Ordinals.Start))
	}
	if rules.claims && s.ServiceName != "" {
		spec.Format("serviceName", s.ServiceName, utilvalidation.IsDNS1123Label)
	}
	workload.SelectorGiven(spec, s.Selector, "statefulset")
	if matches, err := workload.Matches(s.Selector, &s.Template); err != nil {
		spec.Invalid("selector", s.Selector, "")
	} else {
		if !matches {
			workload.Mismatch(spec, &s.Template)
		}
		validateStatefulSetTemplate(spec, s, rules)
	}
	workload.RunsForever(spec, &s.Template, "StatefulSet")
	return spec
}

func validateStatefulSetStrategy(spec *check.Part, s *appsv1.StatefulSetUpdateStrategy) {
	switch s.Type {
	case appsv1.OnDeleteStatefulSetStrategyType:
		if s.RollingUpdate != nil {
			spec.Child("updateStrategy").Invalid("rollingUpdate", check.Internal(*s.RollingUpdate), "only allowed for updateStrategy 'RollingUpdate'")
		}
	case appsv1.RollingUpdateStatefulSetStrategyType:
		if s.RollingUpdate == nil {
			return
		}
		p := spec.Child("updateStrategy").Child("rollingUpdate")
		check.NonNegativeIfSet(p, "partition", s.RollingUpdate.Partition)
		if m := s.RollingUpdate.MaxUnavailable; m != nil {
			workload.IntOrPercent(p, "maxUnavailable", *m)
			if workload.Amount(*m) == 0 {
				p.Invalid("maxUnavailable", *m, "cannot be 0")
			}
			workload.AtMostAll(p, "maxUnavailable", *m)
		}
	default:
		spec.Invalid("updateStrategy", check.Internal(s), "must be 'RollingUpdate' or 'OnDelete'")
	}
}

// statefulSetRetention iterates over the retention policies for claims, by field name, in order.
func statefulSetRetention(p *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy) func(func(string, appsv1.PersistentVolumeClaimRetentionPolicyType) bool) {
	return func(yield func(string, appsv1.PersistentVolumeClaimRetentionPolicyType) bool) {
		if p != nil && yield("whenDeleted", p.WhenDeleted) {
			yield("whenScaled", p.WhenScaled)
		}
	}
}

func validateStatefulSetTemplate(spec *check.Part, s *appsv1.StatefulSetSpec, rules statefulSetRules) {
	path := spec.Path("template")
	if rules.template {
		spec.Add(pod.ValidateTemplate(templateWithClaims(s), rules.oldTemplate, path)...)
	}
	spec.Add(metav1validation.ValidateLabels(s.Template.Labels, path.Child("labels"))...)
	spec.Add(validation.ValidateAnnotations(s.Template.Annotations, path.Child("annotations"))...)
}

// templateWithClaims returns the template as the controller will use it: with a volume for each claim template, and the host name and subdomain that
// the controller sets.
func templateWithClaims(s *appsv1.StatefulSetSpec) *corev1.PodTemplateSpec {
	if s.Template.Spec.Subdomain == "" && s.Template.Spec.Hostname == "" && len(s.VolumeClaimTemplates) == 0 {
		return &s.Template
	}
	t := s.Template
	t.Spec.Subdomain, t.Spec.Hostname = "", ""
	if len(s.VolumeClaimTemplates) == 0 {
		return &t
	}
	claimed := make(map[string]bool, len(s.VolumeClaimTemplates))
	volumes := make([]corev1.Volume, 0, len(s.VolumeClaimTemplates)+len(t.Spec.Volumes))
	for i := range s.VolumeClaimTemplates {
		name := s.VolumeClaimTemplates[i].Name
		if claimed[name] {
			continue
		}
		claimed[name] = true
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
	}
	for _, v := range t.Spec.Volumes {
		if !claimed[v.Name] {
			volumes = append(volumes, v)
		}
	}
	t.Spec.Volumes = volumes
	return &t
}

func statefulSetWarnings(new, old *appsv1.StatefulSet) []string {
	var warnings []string
	templatePath := field.NewPath("spec", "template")
	claims := func(i int) *field.Path { return field.NewPath("spec", "volumeClaimTemplates").Index(i) }
	if old == nil {
		warnings = pod.TemplateWarnings(&new.Spec.Template, nil, templatePath)
	} else {
		if new.Generation != old.Generation {
			warnings = pod.TemplateWarnings(&new.Spec.Template, &old.Spec.Template, templatePath)
		}
		claims = func(i int) *field.Path { return field.NewPath("spec", "volumeClaimTemplates").Index(i).Child("Spec") }
	}
	for i := range new.Spec.VolumeClaimTemplates {
		warnings = append(warnings, fractionWarnings(&new.Spec.VolumeClaimTemplates[i].Spec.Resources, claims(i))...)
	}
	if limit := new.Spec.RevisionHistoryLimit; limit != nil && *limit < 0 {
		warnings = append(warnings, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return warnings
}

// fractionWarnings warns of claims for a fraction of a byte.
func fractionWarnings(r *corev1.VolumeResourceRequirements, claim *field.Path) []string {
	var warnings []string
	for _, list := range []struct {
		name    string
		amounts corev1.ResourceList
	}{{"requests", r.Requests}, {"limits", r.Limits}} {
		amount, ok := list.amounts[corev1.ResourceStorage]
		if ok && amount.MilliValue()%1000 != 0 {
			warnings = append(warnings, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer",
				claim.Child("resources", list.name).Key(string(corev1.ResourceStorage)), amount.String()))
		}
	}
	return warnings
}

func validateStatefulSetStatus(new, old *appsv1.StatefulSet) field.ErrorList {
	s := &new.Status
	p := check.At(field.NewPath("status"))
	p.NonNegative("replicas", int64(s.Replicas))
	p.NonNegative("readyReplicas", int64(s.ReadyReplicas))
	p.NonNegative("currentReplicas", int64(s.CurrentReplicas))
	p.NonNegative("updatedReplicas", int64(s.UpdatedReplicas))
	p.NonNegative("availableReplicas", int64(s.AvailableReplicas))
	p.NonNegative("observedGeneration", s.ObservedGeneration)
	check.NonNegativeIfSet(p, "collisionCount", s.CollisionCount)
	check.AtMost(p, "readyReplicas", s.ReadyReplicas, s.Replicas, beyondReplicas)
	check.AtMost(p, "currentReplicas", s.CurrentReplicas, s.Replicas, beyondReplicas)
	check.AtMost(p, "updatedReplicas", s.UpdatedReplicas, s.Replicas, beyondReplicas)
	check.AtMost(p, "availableReplicas", s.AvailableReplicas, s.Replicas, beyondReplicas)
	check.AtMost(p, "availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "cannot be greater than status.readyReplicas")
	workload.Kept(p, "collisionCount", s.CollisionCount, old.Status.CollisionCount)
	return p.Errors()
}

func statefulSetColumns() []catalog.Column[appsv1.StatefulSet] {
	template := func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template }
	return []catalog.Column[appsv1.StatefulSet]{
		catalog.NameColumn[appsv1.StatefulSet](),
		{Name: "Ready", Description: "Number of the pod with ready state",
			Cell: func(s *appsv1.StatefulSet, _ time.Time) any { return ready(s.Status.ReadyReplicas, s.Spec.Replicas) }},
		catalog.AgeColumn[appsv1.StatefulSet](),
		workload.Containers(template),
		workload.Images(template),
	}
}
