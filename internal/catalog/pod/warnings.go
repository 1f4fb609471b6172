package pod

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/address"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/nodeselector"
	"skiff/internal/catalog/volume"
)

// formerAnnotations are annotations that are no longer used, with what to use instead.
var formerAnnotations = [...]struct{ key, message string }{
	{"scheduler.alpha.kubernetes.io/critical-pod", `non-functional in v1.16+; use the "priorityClassName" field instead`},
	{"security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
	{"security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
}

const (
	fractionalBytes = "fractional byte value %q is invalid, must be an integer"
	matchesNoPod    = "a null labelSelector results in matching no pod"
)

// warnings returns the warnings for a new pod. Updates have none, because people rarely update pods themselves.
func warnings(new, old *corev1.Pod) []string {
	if old != nil {
		return nil
	}
	w := &warner{}
	if msgs := utilvalidation.IsDNS1123Label(new.Name); len(msgs) > 0 {
		w.list = append(w.list, fmt.Sprintf("metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: %v", msgs))
	}
	root := check.At(nil)
	w.appArmorAnnotations(root.Child("metadata"), new)
	w.specAndMeta(root, &new.Spec, &new.ObjectMeta)
	return w.list
}

// TemplateWarnings returns the warnings for a pod template.
func TemplateWarnings(t, _ *corev1.PodTemplateSpec, path *field.Path) []string {
	w := &warner{template: true}
	w.specAndMeta(check.At(path), &t.Spec, &t.ObjectMeta)
	return w.list
}

// statusWarnings returns the warnings for an update of the status.
func statusWarnings(new, _ *corev1.Pod) []string {
	var list []string
	path := field.NewPath("status")
	for i, ip := range new.Status.PodIPs {
		list = append(list, address.Warnings(ip.IP, path.Child("podIPs").Index(i).Child("ip"))...)
	}
	for i, ip := range new.Status.HostIPs {
		list = append(list, address.Warnings(ip.IP, path.Child("hostIPs").Index(i).Child("ip"))...)
	}
	return list
}

// warner collects warnings.
type warner struct {
	template bool
	list     []string
}

func (w *warner) at(path *field.Path, format string, args ...any) {
	w.list = append(w.list, path.String()+": "+fmt.Sprintf(format, args...))
}

func (w *warner) specAndMeta(root *check.Part, spec *corev1.PodSpec, meta *metav1.ObjectMeta) {
	p, m := root.Child("spec"), root.Child("metadata")
	w.nodeLabels(p, spec)
	for _, a := range formerAnnotations {
		if _, found := meta.Annotations[a.key]; found {
			w.at(m.Path("annotations").Key(a.key), "%s", a.message)
		}
	}
	if len(spec.Volumes) > 0 {
		w.list = append(w.list, volume.Warnings(spec.Volumes, p.Path("volumes"))...)
	}
	w.references(p, spec)
	for _, name := range [...]corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		w.bytes(p, "overhead", spec.Overhead, name)
	}
	w.profileAnnotations(m, spec, meta.Annotations)
	for at, c := range containers(spec) {
		w.container(at.in(p), c)
	}
	w.ports(p, spec)
	if grace := spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		w.at(p.Path("terminationGracePeriodSeconds"), "must be >= 0; negative values are invalid and will be treated as 1")
	}
	w.affinity(p, spec.Affinity)
	if spec.DNSConfig != nil {
		for i, ip := range spec.DNSConfig.Nameservers {
			w.list = append(w.list, address.Warnings(ip, p.Path("dnsConfig", "nameservers").Index(i))...)
		}
	}
	for i, alias := range spec.HostAliases {
		w.list = append(w.list, address.Warnings(alias.IP, p.Item("hostAliases", i).Path("ip"))...)
	}
}

// nodeLabels warns of deprecated node labels, wherever a pod can name one.
func (w *warner) nodeLabels(p *check.Part, spec *corev1.PodSpec) {
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		if msg := nodeselector.DeprecatedLabel(key); msg != "" {
			w.at(p.Path("nodeSelector").Key(key), "%s", msg)
		}
	}
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		a, at := spec.Affinity.NodeAffinity, p.Child("affinity").Child("nodeAffinity")
		if required := a.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			w.list = append(w.list, nodeselector.Warnings(required, at.Path("requiredDuringSchedulingIgnoredDuringExecution"))...)
		}
		for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
			// Values that no label can have are refused in required terms, and cause only a warning in preferred ones.
			term := &a.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference
			w.list = append(w.list, nodeselector.TermWarnings(term, true, at.Item("preferredDuringSchedulingIgnoredDuringExecution", i).Path("preference"))...)
		}
	}
	for i := range spec.TopologySpreadConstraints {
		c, at := &spec.TopologySpreadConstraints[i], p.Item("topologySpreadConstraints", i)
		if msg := nodeselector.DeprecatedLabel(c.TopologyKey); msg != "" {
			w.at(at.Path("topologyKey"), "%s is %s", c.TopologyKey, msg)
		}
		if c.LabelSelector == nil {
			w.at(at.Path("labelSelector"), matchesNoPod)
		}
	}
}

// references warns of host aliases and pull secrets that are duplicate or empty.
func (w *warner) references(p *check.Part, spec *corev1.PodSpec) {
	for i, a := range spec.HostAliases {
		if slices.ContainsFunc(spec.HostAliases[:i], func(b corev1.HostAlias) bool { return b.IP == a.IP }) {
			w.at(p.Item("hostAliases", i).Path("ip"), "duplicate ip %q", a.IP)
		}
	}
	for i, s := range spec.ImagePullSecrets {
		if slices.Contains(spec.ImagePullSecrets[:i], s) {
			w.at(p.Item("imagePullSecrets", i).Path("name"), "duplicate name %q", s.Name)
		}
	}
	for i, s := range spec.ImagePullSecrets {
		if s.Name == "" {
			w.at(p.Item("imagePullSecrets", i).Path("name"), `invalid empty name ""`)
		}
	}
}

// bytes warns of fractions of a byte.
func (w *warner) bytes(p *check.Part, list string, amounts corev1.ResourceList, name corev1.ResourceName) {
	if q, found := amounts[name]; found && isFraction(q) {
		w.at(p.Path(list).Key(string(name)), fractionalBytes, q.String())
	}
}

func isFraction(q resource.Quantity) bool { return q.MilliValue()%1000 != 0 }

// profileAnnotations warns of security profiles in annotations that are not also in a field.
func (w *warner) profileAnnotations(m *check.Part, spec *corev1.PodSpec, annotations map[string]string) {
	if len(annotations) == 0 {
		return
	}
	seccomp := func(key string, profile *corev1.SeccompProfile) {
		if _, found := annotations[key]; found && profile == nil {
			w.at(m.Path("annotations").Key(key), `non-functional in v1.27+; use the "seccompProfile" field instead`)
		}
	}
	if s := spec.SecurityContext; s == nil {
		seccomp(corev1.SeccompPodAnnotationKey, nil)
	} else {
		seccomp(corev1.SeccompPodAnnotationKey, s.SeccompProfile)
	}
	for _, c := range containers(spec) {
		var s corev1.SecurityContext
		if c.SecurityContext != nil {
			s = *c.SecurityContext
		}
		seccomp(seccompPrefix+c.Name, s.SeccompProfile)
		annotation, found := annotations[appArmorPrefix+c.Name]
		if !w.template || !found || s.AppArmorProfile != nil {
			continue
		}
		if pod := podAppArmorProfile(spec); pod == nil || !apiequality.Semantic.DeepEqual(pod, namedAppArmorProfile(annotation)) {
			w.appArmor(m, c.Name)
		}
	}
}

func (w *warner) appArmor(m *check.Part, container string) {
	w.at(m.Path("annotations").Key(appArmorPrefix+container), `deprecated since v1.30; use the "appArmorProfile" field instead`)
}

// appArmorAnnotations warns of AppArmor annotations of a pod after PrepareCreate: those that were copied into a field, and invalid
// ones.
func (w *warner) appArmorAnnotations(m *check.Part, p *corev1.Pod) {
	if len(p.Annotations) == 0 || p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
		return
	}
	for _, c := range containers(&p.Spec) {
		annotation, found := p.Annotations[appArmorPrefix+c.Name]
		if !found {
			continue
		}
		profile := appArmorProfile(annotation)
		hasProfile := c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil
		if !hasProfile && profile == nil || hasProfile && profile != nil && !apiequality.Semantic.DeepEqual(profile, podAppArmorProfile(&p.Spec)) {
			w.appArmor(m, c.Name)
		}
	}
}

func (w *warner) container(p *check.Part, c *corev1.Container) {
	if len(c.Resources.Limits)+len(c.Resources.Requests) > 0 {
		at := p.Child("resources")
		for _, name := range [...]corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			w.bytes(at, "limits", c.Resources.Limits, name)
			w.bytes(at, "requests", c.Resources.Requests, name)
		}
	}
	for i := range c.Env {
		v := &c.Env[i]
		if hidesEarlier(c.Env[:i], v) {
			w.at(p.Path("env").Index(i), "hides previous definition of %q, which may be dropped when using apply", v.Name)
		}
	}
}

// hidesEarlier reports whether a variable was defined before and the new definition does not refer to the old.
func hidesEarlier(before []corev1.EnvVar, v *corev1.EnvVar) bool {
	if !slices.ContainsFunc(before, func(b corev1.EnvVar) bool { return b.Name == v.Name }) {
		return false
	}
	ref := "$(" + v.Name + ")"
	return v.ValueFrom != nil || v.Value == ref || !strings.Contains(v.Value, ref)
}

// affinity warns of terms that cannot match.
func (w *warner) affinity(p *check.Part, a *corev1.Affinity) {
	required, preferred := affinityTerms(a)
	for i, kind := range [...]string{"podAffinity", "podAntiAffinity"} {
		at := p.Child("affinity").Child(kind)
		for j := range required[i] {
			if required[i][j].LabelSelector == nil {
				w.at(at.Item("requiredDuringSchedulingIgnoredDuringExecution", j).Path("labelSelector"), matchesNoPod)
			}
		}
		for j := range preferred[i] {
			if preferred[i][j].PodAffinityTerm.LabelSelector == nil {
				w.at(at.Item("preferredDuringSchedulingIgnoredDuringExecution", j).Path("podAffinityTerm", "labelSelector"), matchesNoPod)
			}
		}
	}
}
