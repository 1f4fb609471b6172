package scheduling

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Containers without requests count for this in scores, so that nodes do not fill up with such pods: 0.1 CPU, 200 MB.
const (
	defaultMilliCPU = 100
	defaultMemory   = 200 * 1024 * 1024
)

// Pod is a pod with everything that plugins read, parsed once. It is immutable: a changed pod is a new Pod.
type Pod struct {
	*corev1.Pod

	Priority  int32
	Requests  Resources  // what it uses of a node
	NonZero   CPUMemory  // the same for scoring: containers without requests count for something
	HostPorts []HostPort // host ports that it binds
	Images    []string   // of init containers, containers and image volumes, with tag, without duplicates, in this order

	// Terms of pod affinity and anti-affinity.
	RequiredAffinity, RequiredAntiAffinity   []Term
	PreferredAffinity, PreferredAntiAffinity []WeightedTerm

	affinityErr                  error // why terms could not be parsed
	badAffinity, badAntiAffinity bool  // required terms could not be parsed
	prefersPods                  bool  // it has preferred terms, parsed or not

	nodeAffinity      *nodeaffinity.RequiredNodeAffinity     // including the node selector; nil: any node
	preferredNodes    *nodeaffinity.PreferredSchedulingTerms // nil: no preference
	preferredNodesErr error

	spread   []spreadConstraint
	features []string // kubelet features that it needs

	claims         []podClaim       // of its volumes
	exclusiveDisks []*corev1.Volume // disks that a node can attach once

	scoreRequests *Resources // as NodeResourcesFit scores: without pod-level requests. nil: as Requests
	scoreNonZero  CPUMemory
}

// CPUMemory is an amount of CPU and memory.
type CPUMemory struct{ MilliCPU, Memory int64 }

// HostPort is a port of a node that a pod binds.
type HostPort struct {
	IP       string // 0.0.0.0 for all
	Protocol corev1.Protocol
	Port     int32
}

// Conflicts reports whether the two cannot be bound on one node.
func (p HostPort) Conflicts(other HostPort) bool {
	return p.Port == other.Port && p.Protocol == other.Protocol && (p.IP == other.IP || p.IP == anyIP || other.IP == anyIP)
}

const anyIP = "0.0.0.0"

// Term is a term of pod affinity or anti-affinity: the pods that it matches, and the topology key.
type Term struct {
	Namespaces        []string // sorted
	NamespaceSelector labels.Selector
	Selector          labels.Selector
	TopologyKey       string

	key string // equal for equal terms
}

// WeightedTerm is a preferred term.
type WeightedTerm struct {
	Term
	Weight int32
}

// Matches reports whether the term matches the pod, whose namespace has these labels.
func (t *Term) Matches(pod *Pod, namespace labels.Set) bool {
	return (slices.Contains(t.Namespaces, pod.Namespace) || t.NamespaceSelector.Matches(namespace)) && t.Selector.Matches(labels.Set(pod.Labels))
}

// NewPod parses a pod. Parts that cannot be parsed are left out and reported by the plugin that needs them.
func NewPod(pod *corev1.Pod) *Pod {
	p := &Pod{Pod: pod}
	if pod.Spec.Priority != nil {
		p.Priority = *pod.Spec.Priority
	}
	p.parseRequests()
	p.parseContainers()
	if a := pod.Spec.Affinity; a != nil && (a.PodAffinity != nil || a.PodAntiAffinity != nil) {
		p.parseTerms(a)
	}
	p.parseNodeAffinity()
	p.parseVolumes()
	p.features = neededFeatures(pod)
	if len(pod.Spec.TopologySpreadConstraints) > 0 {
		p.spread = parseSpread(pod.Spec.TopologySpreadConstraints, pod.Labels)
	}
	return p
}

func (p *Pod) parseNodeAffinity() {
	var a corev1.NodeAffinity
	if p.Spec.Affinity != nil && p.Spec.Affinity.NodeAffinity != nil {
		a = *p.Spec.Affinity.NodeAffinity
	}
	if p.Spec.NodeSelector != nil || a.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		required := nodeaffinity.GetRequiredNodeAffinity(p.Pod)
		p.nodeAffinity = &required
	}
	if preferred := a.PreferredDuringSchedulingIgnoredDuringExecution; preferred != nil {
		p.preferredNodes, p.preferredNodesErr = nodeaffinity.NewPreferredSchedulingTerms(preferred)
	}
}

func (p *Pod) parseRequests() {
	options := resourcehelper.PodResourcesOptions{InPlacePodLevelResourcesVerticalScalingEnabled: true}
	// Allocated resources count while they differ from the requests. Before the pod runs its status has none.
	options.UseStatusResources = len(p.Status.ContainerStatuses)+len(p.Status.InitContainerStatuses) > 0 || p.Status.Resources != nil ||
		p.Status.AllocatedResources != nil || resourcehelper.IsPodResizeInfeasible(p.Pod)
	requests := podRequests(p.Pod, options)
	p.Requests = NewResources(requests)

	atPodLevel := resourcehelper.IsPodLevelRequestsSet(p.Pod)
	_, cpu := requests[corev1.ResourceCPU]
	_, memory := requests[corev1.ResourceMemory]
	options.NonMissingContainerRequests = defaultRequests(!cpu || !atPodLevel, !memory || !atPodLevel)
	if len(options.NonMissingContainerRequests) > 0 && (options.UseStatusResources || !allRequest(&p.Spec)) {
		requests = podRequests(p.Pod, options)
	}
	p.NonZero = cpuAndMemory(requests)
	p.scoreNonZero = p.NonZero
	if atPodLevel {
		options = resourcehelper.PodResourcesOptions{SkipPodLevelResources: true}
		r := NewResources(podRequests(p.Pod, options))
		options.NonMissingContainerRequests = defaultRequests(true, true)
		p.scoreRequests, p.scoreNonZero = &r, cpuAndMemory(podRequests(p.Pod, options))
	}
}

// allRequest reports whether every container requests CPU and memory.
func allRequest(spec *corev1.PodSpec) bool {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			_, cpu := list[i].Resources.Requests[corev1.ResourceCPU]
			_, memory := list[i].Resources.Requests[corev1.ResourceMemory]
			if !cpu || !memory {
				return false
			}
		}
	}
	return true
}

// defaultRequests returns what containers without requests count for.
func defaultRequests(cpu, memory bool) corev1.ResourceList {
	list := corev1.ResourceList{}
	if cpu {
		list[corev1.ResourceCPU] = *resource.NewMilliQuantity(defaultMilliCPU, resource.DecimalSI)
	}
	if memory {
		list[corev1.ResourceMemory] = *resource.NewQuantity(defaultMemory, resource.DecimalSI)
	}
	return list
}

// podRequests sums up a pod's requests. The library would add the overhead to the pod's own quantities if they have fractions (1.5Gi).
func podRequests(pod *corev1.Pod, options resourcehelper.PodResourcesOptions) corev1.ResourceList {
	if pod.Spec.Resources != nil && pod.Spec.Overhead != nil {
		shallow := *pod
		shallow.Spec.Resources = pod.Spec.Resources.DeepCopy()
		pod = &shallow
	}
	return resourcehelper.PodRequests(pod, options)
}

func cpuAndMemory(list corev1.ResourceList) CPUMemory {
	cpu, memory := list[corev1.ResourceCPU], list[corev1.ResourceMemory]
	return CPUMemory{cpu.MilliValue(), memory.Value()}
}

func (p *Pod) parseContainers() {
	spec := &p.Spec
	p.Images = make([]string, 0, len(spec.InitContainers)+len(spec.Containers))
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		p.Images = append(p.Images, withTag(c.Image))
		// Other init containers have terminated by the time the pod serves.
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			p.addHostPorts(c.Ports)
		}
	}
	for i := range spec.Containers {
		p.Images = append(p.Images, withTag(spec.Containers[i].Image))
		p.addHostPorts(spec.Containers[i].Ports)
	}
	for i := range spec.Volumes {
		if image := spec.Volumes[i].Image; image != nil {
			p.Images = append(p.Images, withTag(image.Reference))
		}
	}
}

func (p *Pod) addHostPorts(ports []corev1.ContainerPort) {
	for _, port := range ports {
		if port.HostPort <= 0 {
			continue
		}
		h := HostPort{port.HostIP, port.Protocol, port.HostPort}
		if h.IP == "" {
			h.IP = anyIP
		}
		if h.Protocol == "" {
			h.Protocol = corev1.ProtocolTCP
		}
		p.HostPorts = append(p.HostPorts, h)
	}
}

// withTag returns an image's name as nodes list it.
func withTag(image string) string {
	if strings.LastIndexByte(image, ':') <= strings.LastIndexByte(image, '/') {
		return image + ":latest"
	}
	return image
}

func (p *Pod) parseTerms(a *corev1.Affinity) {
	var errs []error
	failed := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	var err error
	affinity, anti := a.PodAffinity, a.PodAntiAffinity
	if affinity == nil {
		affinity = &corev1.PodAffinity{}
	}
	if anti == nil {
		anti = &corev1.PodAntiAffinity{}
	}
	p.RequiredAffinity, err = p.terms(affinity.RequiredDuringSchedulingIgnoredDuringExecution)
	p.badAffinity = err != nil
	failed("requiredAffinityTerms", err)
	p.RequiredAntiAffinity, err = p.terms(anti.RequiredDuringSchedulingIgnoredDuringExecution)
	p.badAntiAffinity = err != nil
	failed("requiredAntiAffinityTerms", err)
	p.PreferredAffinity, err = p.weightedTerms(affinity.PreferredDuringSchedulingIgnoredDuringExecution)
	failed("preferredAffinityTerms", err)
	p.PreferredAntiAffinity, err = p.weightedTerms(anti.PreferredDuringSchedulingIgnoredDuringExecution)
	failed("preferredAntiAffinityTerms", err)
	p.affinityErr = utilerrors.NewAggregate(errs)
	p.prefersPods = len(affinity.PreferredDuringSchedulingIgnoredDuringExecution)+len(anti.PreferredDuringSchedulingIgnoredDuringExecution) > 0
}

func (p *Pod) terms(in []corev1.PodAffinityTerm) ([]Term, error) {
	terms := make([]Term, 0, len(in))
	for i := range in {
		t, err := p.term(&in[i])
		if err != nil {
			return nil, err
		}
		terms = append(terms, t)
	}
	return terms, nil
}

func (p *Pod) weightedTerms(in []corev1.WeightedPodAffinityTerm) ([]WeightedTerm, error) {
	terms := make([]WeightedTerm, 0, len(in))
	for i := range in {
		t, err := p.term(&in[i].PodAffinityTerm)
		if err != nil {
			return nil, err
		}
		terms = append(terms, WeightedTerm{t, in[i].Weight})
	}
	return terms, nil
}

func (p *Pod) term(in *corev1.PodAffinityTerm) (Term, error) {
	t := Term{TopologyKey: in.TopologyKey}
	var err error
	if t.Selector, err = metav1.LabelSelectorAsSelector(in.LabelSelector); err != nil {
		return t, err
	}
	if t.NamespaceSelector, err = metav1.LabelSelectorAsSelector(in.NamespaceSelector); err != nil {
		return t, err
	}
	t.Namespaces = in.Namespaces
	if len(in.Namespaces) == 0 && in.NamespaceSelector == nil {
		t.Namespaces = []string{p.Namespace}
	}
	t.Namespaces = slices.Compact(slices.Sorted(slices.Values(t.Namespaces)))
	t.key = strings.Join(t.Namespaces, ",") + "\x00" + selectorKey(t.NamespaceSelector) + "\x00" + selectorKey(t.Selector) + "\x00" + t.TopologyKey
	return t, nil
}

// selectorKey is equal for selectors that select the same. A selector's String alone is not: it is empty for everything and for nothing.
func selectorKey(s labels.Selector) string {
	if _, selectable := s.Requirements(); !selectable {
		return "\x01"
	}
	return s.String()
}
