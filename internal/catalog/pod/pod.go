package pod

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"

	"skiff/internal/catalog"
)

var Pod = catalog.Resource[corev1.Pod]{
	Version: "v1", Kind: "Pod", Plural: "pods", Short: []string{"po"}, Categories: []string{"all"}, Namespaced: true,
	Deletion:            catalog.Deletion[corev1.Pod]{ReturnsObject: true},
	EndsTokens:          true,
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default:             defaultPod,
	PrepareCreate:       prepareCreate,
	PrepareUpdate:       prepareUpdate,
	Changed:             catalog.SpecChanged[corev1.Pod],
	Validate:            validate,
	ValidateUpdate:      validateUpdate,
	Initialize:          initialize,
	Warnings:            warnings,
	Grace:               grace,
	Status: &catalog.Edit[corev1.Pod]{
		PrepareUpdate: prepareStatus, ValidateUpdate: validateStatus, Warnings: statusWarnings,
		ResetFields: []string{"metadata.deletionTimestamp", "metadata.ownerReferences"},
	},
	Edits: []catalog.Edit[corev1.Pod]{
		{Name: "ephemeralcontainers", PrepareUpdate: prepareEphemeralContainers, ValidateUpdate: validateEphemeralContainers},
		{Name: "resize", PrepareUpdate: prepareResize, ValidateUpdate: validateResize},
	},
	Subresources: []catalog.Subresource{
		{Name: "attach", Kind: "PodAttachOptions", Verbs: []string{"create", "get"}},
		{Name: "binding", Kind: "Binding", Verbs: []string{"create"}},
		{Name: "eviction", Kind: "Eviction", Group: "policy", Version: "v1", Verbs: []string{"create"}},
		{Name: "exec", Kind: "PodExecOptions", Verbs: []string{"create", "get"}},
		{Name: "log", Kind: "Pod", Verbs: []string{"get"}},
		{Name: "portforward", Kind: "PodPortForwardOptions", Verbs: []string{"create", "get"}},
		{Name: "proxy", Kind: "PodProxyOptions", Verbs: []string{"create", "delete", "get", "patch", "update"}},
	},
	Fields: []catalog.Field[corev1.Pod]{
		{Name: "spec.nodeName", Value: func(p *corev1.Pod) string { return p.Spec.NodeName }},
		{Name: "spec.restartPolicy", Value: func(p *corev1.Pod) string { return string(p.Spec.RestartPolicy) }},
		{Name: "spec.schedulerName", Value: func(p *corev1.Pod) string { return p.Spec.SchedulerName }},
		{Name: "spec.serviceAccountName", Value: func(p *corev1.Pod) string { return p.Spec.ServiceAccountName }},
		{Name: "spec.hostNetwork", Value: func(p *corev1.Pod) string { return strconv.FormatBool(p.Spec.HostNetwork) }},
		{Name: "status.phase", Value: func(p *corev1.Pod) string { return string(p.Status.Phase) }},
		{Name: "status.podIP", Value: podIP},
		// A field selector may name podIPs, but no pod has a value for it.
		{Name: "status.podIPs", Value: func(*corev1.Pod) string { return "" }},
		{Name: "status.nominatedNodeName", Value: func(p *corev1.Pod) string { return p.Status.NominatedNodeName }},
		// What spec.nodeName was called by the first clients of v1.
		{Name: "spec.host", Value: func(p *corev1.Pod) string { return p.Spec.NodeName }},
	},
	Columns:       columns,
	RowConditions: rowConditions,
	Complete:      true,
}

// grace returns the grace period of a pod: the requested one, else that of its spec. A pod that is not bound, or has finished, is deleted at
// once.
func grace(p *corev1.Pod, asked *int64) int64 {
	period := asked
	if period == nil {
		period = p.Spec.TerminationGracePeriodSeconds
	}
	switch {
	case period == nil, p.Spec.NodeName == "", p.Status.Phase == corev1.PodFailed, p.Status.Phase == corev1.PodSucceeded:
		return 0
	case *period < 0:
		return 1
	default:
		return *period
	}
}
