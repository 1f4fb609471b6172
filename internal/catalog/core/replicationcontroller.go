package core

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/pod"
)

var ReplicationController = catalog.Resource[corev1.ReplicationController]{
	Version: "v1", Kind: "ReplicationController", Plural: "replicationcontrollers", Short: []string{"rc"},
	Categories: []string{"all"}, Namespaced: true,
	StorageName:         "controllers",
	Name:                check.LongName,
	UnconditionalUpdate: true,
	OrphanByDefault:     true, // as it was before there was a choice
	Default:             defaultReplicationController,
	PrepareCreate:       func(rc *corev1.ReplicationController, _ catalog.Request) { prepareController(rc) },
	PrepareUpdate:       func(new, _ *corev1.ReplicationController) { prepareController(new) },
	Changed:             catalog.SpecChanged[corev1.ReplicationController],
	Validate: func(rc *corev1.ReplicationController) field.ErrorList {
		return validateController(rc, nil)
	},
	ValidateUpdate: validateControllerUpdate,
	Warnings:       controllerWarnings,
	Status:         &catalog.Edit[corev1.ReplicationController]{ValidateUpdate: validateControllerStatus},
	Scale: &catalog.Scale[corev1.ReplicationController]{
		Get: func(rc *corev1.ReplicationController) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus) {
			return autoscalingv1.ScaleSpec{Replicas: ptr.Deref(rc.Spec.Replicas, 0)},
				autoscalingv1.ScaleStatus{Replicas: rc.Status.Replicas, Selector: labels.SelectorFromSet(rc.Spec.Selector).String()}
		},
		Set: func(rc *corev1.ReplicationController, replicas int32) { rc.Spec.Replicas = &replicas },
	},
	Fields: []catalog.Field[corev1.ReplicationController]{
		{Name: "status.replicas", Value: func(rc *corev1.ReplicationController) string { return strconv.Itoa(int(rc.Status.Replicas)) }},
	},
	Columns:  controllerColumns,
	Complete: true,
}

// defaultReplicationController sets missing labels and selector from the labels of the template.
func defaultReplicationController(rc *corev1.ReplicationController) {
	if t := rc.Spec.Template; t != nil {
		if len(rc.Spec.Selector) == 0 {
			rc.Spec.Selector = maps.Clone(t.Labels)
		}
		if len(rc.Labels) == 0 {
			rc.Labels = maps.Clone(t.Labels)
		}
		pod.DefaultTemplate(t)
	}
	if rc.Spec.Replicas == nil {
		rc.Spec.Replicas = ptr.To[int32](1)
	}
}

func prepareController(rc *corev1.ReplicationController) {
	if rc.Spec.Template != nil {
		pod.PrepareTemplate(rc.Spec.Template)
	}
}

func validateController(new, old *corev1.ReplicationController) field.ErrorList {
	p := check.At(field.NewPath("spec"))
	if len(new.Spec.Selector) == 0 {
		p.Required("selector", "")
	}
	if new.Spec.Template == nil {
		p.Required("template", "")
	} else {
		var oldTemplate *corev1.PodTemplateSpec
		if old != nil {
			oldTemplate = old.Spec.Template
		}
		validateControllerTemplate(p.Child("template"), &new.Spec, oldTemplate)
	}
	p.NonNegative("replicas", int64(ptr.Deref(new.Spec.Replicas, 0)))
	p.NonNegative("minReadySeconds", int64(new.Spec.MinReadySeconds))
	return p.Errors()
}

func validateControllerTemplate(p *check.Part, spec *corev1.ReplicationControllerSpec, old *corev1.PodTemplateSpec) {
	t := spec.Template
	if !labels.SelectorFromSet(spec.Selector).Matches(labels.Set(t.Labels)) {
		p.Child("metadata").Invalid("labels", t.Labels, "`selector` does not match template `labels`")
	}
	p.Add(pod.ValidateTemplate(t, old, p.Path())...)
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		p.Add(field.NotSupported(p.Path("spec", "restartPolicy"), t.Spec.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		p.Child("spec").Forbidden("activeDeadlineSeconds", "activeDeadlineSeconds in ReplicationController is not Supported")
	}
}

func validateControllerUpdate(new, old *corev1.ReplicationController) field.ErrorList {
	return append(validateController(new, old), validateNonConvertible(new, old)...)
}

// validateNonConvertible refuses changes of fields that came from other API versions and could not be expressed in this one; an
// annotation lists them.
func validateNonConvertible(new, old *corev1.ReplicationController) field.ErrorList {
	var errs field.ErrorList
	for key, value := range old.Annotations {
		name, ok := strings.CutPrefix(key, corev1.NonConvertibleAnnotationPrefix)
		_, broken, slash := strings.Cut(name, "/")
		switch {
		case !ok || !slash || strings.Contains(broken, "/"):
		case !strings.Contains(broken, "selector"):
			errs = append(errs, &field.Error{Type: field.ErrorTypeNotFound, BadValue: value, Field: broken, Detail: "unknown non-convertible field"})
		case !maps.Equal(new.Spec.Selector, old.Spec.Selector):
			errs = append(errs, field.Invalid(field.NewPath("spec", "selector"), new.Spec.Selector, "cannot update non-convertible selector"))
		}
	}
	return errs
}

func validateControllerStatus(new, _ *corev1.ReplicationController) field.ErrorList {
	p, s := check.At(field.NewPath("status")), &new.Status
	p.NonNegative("replicas", int64(s.Replicas))
	p.NonNegative("fullyLabeledReplicas", int64(s.FullyLabeledReplicas))
	p.NonNegative("readyReplicas", int64(s.ReadyReplicas))
	p.NonNegative("availableReplicas", int64(s.AvailableReplicas))
	p.NonNegative("observedGeneration", s.ObservedGeneration)
	const all = "cannot be greater than status.replicas"
	check.AtMost(p, "fullyLabeledReplicas", s.FullyLabeledReplicas, s.Replicas, all)
	check.AtMost(p, "readyReplicas", s.ReadyReplicas, s.Replicas, all)
	check.AtMost(p, "availableReplicas", s.AvailableReplicas, s.Replicas, all)
	check.AtMost(p, "availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "cannot be greater than readyReplicas")
	return p.Errors()
}

func controllerWarnings(new, old *corev1.ReplicationController) []string {
	path := field.NewPath("spec", "template")
	if old != nil {
		if new.Generation == old.Generation {
			return nil
		}
		// Upstream swaps the two arguments: it warns of the old template.
		return templateWarnings(old.Spec.Template, new.Spec.Template, path)
	}
	var warnings []string
	if msgs := utilvalidation.IsDNS1123Label(new.Name); len(msgs) > 0 {
		warnings = append(warnings, fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in "+
			"surprising behavior; a DNS label is recommended: %v", msgs))
	}
	return append(warnings, templateWarnings(new.Spec.Template, nil, path)...)
}

func templateWarnings(t, old *corev1.PodTemplateSpec, path *field.Path) []string {
	if t == nil {
		return nil
	}
	return pod.TemplateWarnings(t, old, path)
}

const (
	containersDoc = "Names of each container in the template."
	imagesDoc     = "Images referenced by each container in the template."
)

var controllerColumns = []catalog.Column[corev1.ReplicationController]{
	catalog.NameColumn[corev1.ReplicationController](),
	{Name: "Desired", Type: "integer", Description: corev1.ReplicationControllerSpec{}.SwaggerDoc()["replicas"],
		Cell: func(rc *corev1.ReplicationController, _ time.Time) any { return int64(ptr.Deref(rc.Spec.Replicas, 0)) }},
	{Name: "Current", Type: "integer", Description: corev1.ReplicationControllerStatus{}.SwaggerDoc()["replicas"],
		Cell: func(rc *corev1.ReplicationController, _ time.Time) any { return int64(rc.Status.Replicas) }},
	{Name: "Ready", Type: "integer", Description: corev1.ReplicationControllerStatus{}.SwaggerDoc()["readyReplicas"],
		Cell: func(rc *corev1.ReplicationController, _ time.Time) any { return int64(rc.Status.ReadyReplicas) }},
	catalog.AgeColumn[corev1.ReplicationController](),
	{Name: "Containers", Priority: 1, Description: containersDoc,
		Cell: func(rc *corev1.ReplicationController, _ time.Time) any {
			return containerNames(controllerContainers(rc))
		}},
	{Name: "Images", Priority: 1, Description: imagesDoc,
		Cell: func(rc *corev1.ReplicationController, _ time.Time) any {
			return containerImages(controllerContainers(rc))
		}},
	{Name: "Selector", Priority: 1, Description: corev1.ReplicationControllerSpec{}.SwaggerDoc()["selector"],
		Cell: func(rc *corev1.ReplicationController, _ time.Time) any { return labels.FormatLabels(rc.Spec.Selector) }},
}

func controllerContainers(rc *corev1.ReplicationController) []corev1.Container {
	if rc.Spec.Template == nil {
		return nil
	}
	return rc.Spec.Template.Spec.Containers
}

func containerNames(containers []corev1.Container) string {
	return join(containers, func(c corev1.Container) string { return c.Name })
}

func containerImages(containers []corev1.Container) string {
	return join(containers, func(c corev1.Container) string { return c.Image })
}

func join[T any](items []T, text func(T) string) string {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = text(item)
	}
	return strings.Join(texts, ",")
}
