package pod

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/quantity"
	"skiff/internal/catalog/volume"
)

// rules validate the spec of one pod or template.
type rules struct {
	spec    *corev1.PodSpec
	meta    *metav1.ObjectMeta // the pod's metadata, nil for a template
	allow   leniency
	volumes map[string]corev1.VolumeSource
}

// checkSpec validates a spec; meta is the pod's metadata, nil if the spec is a template's.
func checkSpec(p *check.Part, spec *corev1.PodSpec, meta *metav1.ObjectMeta, allow leniency) {
	r := &rules{spec: spec, meta: meta, allow: allow}
	if spec.TerminationGracePeriodSeconds == nil {
		p.Required("terminationGracePeriodSeconds", "")
	}
	r.checkVolumes(p)
	r.resourceClaims(p)
	r.regularContainers(p)
	r.initContainers(p)
	r.ephemeralContainers(p)
	r.podLevelResources(p)
	r.hostNetworkPorts(p)
	oneOfRequired(p, "restartPolicy", spec.RestartPolicy, restartPolicies)
	r.dnsPolicy(p)
	checkLabels(p, "nodeSelector", spec.NodeSelector)
	r.podSecurityContext(p)
	if is(spec.ShareProcessNamespace) && spec.HostPID {
		p.Invalid("shareProcessNamespace", true, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	r.affinity(p)
	r.dnsConfig(p)
	for i, gate := range spec.ReadinessGates {
		p.Item("readinessGates", i).Format("conditionType", string(gate.ConditionType), utilvalidation.IsQualifiedName)
	}
	r.schedulingGates(p)
	r.topologySpread(p)
	r.hostProcess(p)
	r.userNamespace(p)
	r.hostnameOverride(p)
	r.names(p)
	if deadline := spec.ActiveDeadlineSeconds; deadline != nil && (*deadline < 1 || *deadline > math.MaxInt32) {
		p.Invalid("activeDeadlineSeconds", *deadline, utilvalidation.InclusiveRangeError(1, math.MaxInt32))
	}
	r.hostNames(p)
	r.tolerations(p)
	r.hostAliases(p)
	r.classes(p)
	quantity.Requirements{Name: quantity.ContainerName, PartialHugePages: allow.partialHugePages}.Validate(spec.Overhead, nil, p.Child("overhead"))
	r.operatingSystem(p)
	r.envFileVolumes(p)
}

func (r *rules) isPod() bool     { return r.meta != nil }
func (r *rules) isWindows() bool { return r.spec.OS != nil && r.spec.OS.Name == corev1.Windows }
func (r *rules) hostUsers() bool { return r.spec.HostUsers == nil || *r.spec.HostUsers }

func (r *rules) checkVolumes(p *check.Part) {
	if len(r.spec.Volumes) == 0 {
		return
	}
	var errs field.ErrorList
	r.volumes, errs = volume.Validate(r.spec.Volumes, r.meta, p.Path("volumes"))
	p.Add(errs...)
}

func (r *rules) names(p *check.Part) {
	spec := r.spec
	if spec.ServiceAccountName != "" {
		formatName(p, "serviceAccountName", spec.ServiceAccountName, validation.ValidateServiceAccountName)
	}
	if spec.NodeName != "" {
		formatName(p, "nodeName", spec.NodeName, validation.NameIsDNSSubdomain)
	}
}

func (r *rules) classes(p *check.Part) {
	if name := r.spec.PriorityClassName; name != "" {
		formatName(p, "priorityClassName", name, validation.NameIsDNSSubdomain)
	}
	if name := r.spec.RuntimeClassName; name != nil {
		formatName(p, "runtimeClassName", *name, validation.NameIsDNSSubdomain)
	}
	if policy := r.spec.PreemptionPolicy; policy != nil {
		oneOfRequired(p, "preemptionPolicy", *policy, preemptionPolicies)
	}
}

// Values of fields, in the order in which error messages list them.
var (
	restartPolicies    = []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}
	preemptionPolicies = []corev1.PreemptionPolicy{corev1.PreemptLowerPriority, corev1.PreemptNever}
)

// oneOfRequired adds an error if a value is missing or not supported.
func oneOfRequired[S ~string](p *check.Part, name string, value S, supported []S) {
	if value == "" {
		p.Required(name, "")
		return
	}
	check.OneOf(p, name, value, supported...)
}

func formatName(p *check.Part, name, value string, rule func(string, bool) []string) {
	for _, msg := range rule(value, false) {
		p.Invalid(name, value, msg)
	}
}
