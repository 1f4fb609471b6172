package scheduling

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
)

// fit refuses nodes that do not have enough left of what the pod requests, and scores by how much is used (see resourcescore.go).
type fit struct {
	ignored       []string // extended resources that are not checked, by name and by the prefix before the slash
	ignoredGroups []string
	resources     []schedv1.ResourceSpec
	strategy      strategy
	refused       [1 << 5]*Status // by shortage
}

// shortage is the set of resources that a node has too little of; noWay is set if more is requested than it has in all.
type shortage uint8

const (
	ofPods shortage = 1 << iota
	ofCPU
	ofMemory
	ofEphemeralStorage
	noWay
)

var shortages = []struct {
	bit    shortage
	reason string
}{
	{ofPods, "Too many pods"}, {ofCPU, "Insufficient cpu"}, {ofMemory, "Insufficient memory"}, {ofEphemeralStorage, "Insufficient ephemeral-storage"},
}

func newFit(args *schedv1.NodeResourcesFitArgs) *fit {
	p := &fit{ignored: args.IgnoredResources, ignoredGroups: args.IgnoredResourceGroups, resources: args.ScoringStrategy.Resources}
	p.strategy = newStrategy(args.ScoringStrategy)
	for set := range p.refused {
		p.refused[set] = shortage(set).status()
	}
	return p
}

func (s shortage) status(more ...string) *Status {
	var reasons []string
	for _, of := range shortages {
		if s&of.bit != 0 {
			reasons = append(reasons, of.reason)
		}
	}
	code := Unschedulable
	if s&noWay != 0 {
		code = UnschedulableAndUnresolvable
	}
	return refuse(NodeResourcesFit, code, append(reasons, more...)...)
}

func (*fit) Name() string { return NodeResourcesFit }

func (*fit) EventsToRegister() []EventWithHint {
	return []EventWithHint{
		{AssignedPod, Delete, func(_ *Pod, e Event) bool { return e.OldPod.placed() }},
		{NodeKind, Add | UpdateNodeAllocatable, nodeMayFit},
		{AssignedPod, UpdatePodScaleDown, func(pod *Pod, e Event) bool {
			return e.NewPod.Spec.NodeName != "" && anyGrew(&pod.Requests, &e.NewPod.Requests, &e.OldPod.Requests)
		}},
		{TargetPod, UpdatePodScaleDown, nil},
		{DeviceClassKind, Add | Update, func(pod *Pod, e Event) bool {
			old, new := updated[*resourcev1.DeviceClass](e)
			if old == nil && pod.Requests.Scalar(corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix+new.Name)) > 0 {
				return true
			}
			name := ptr.Deref(new.Spec.ExtendedResourceName, "")
			return (old == nil || ptr.Deref(old.Spec.ExtendedResourceName, "") != name) && name != "" && pod.Requests.Scalar(corev1.ResourceName(name)) > 0
		}},
	}
}

// nodeMayFit reports whether the node, if it were empty, had room for the pod, and has more than before of something the pod requests.
func nodeMayFit(pod *Pod, e Event) bool {
	now := NewResources(e.NewNode.Status.Allocatable)
	empty := Node{Allocatable: now}
	check := &fitCheck{plugin: &fit{}, requests: &pod.Requests, hasRequests: pod.Requests.any()}
	if e.Devices != nil {
		check.byDevices = deviceClassesOf(pod, e.Devices)
	}
	if check.Filter(&empty) != nil {
		return false
	}
	if e.OldNode == nil {
		return true
	}
	for name := range check.byDevices {
		if now.Scalar(name) == 0 {
			return true
		}
	}
	before := NewResources(e.OldNode.Status.Allocatable)
	return now.AllowedPods > before.AllowedPods || anyGrew(&pod.Requests, &before, &now)
}

// anyGrew reports whether there is more of a requested resource.
func anyGrew(asked, before, now *Resources) bool {
	if asked.MilliCPU > 0 && now.MilliCPU > before.MilliCPU || asked.Memory > 0 && now.Memory > before.Memory ||
		asked.EphemeralStorage > 0 && now.EphemeralStorage > before.EphemeralStorage {
		return true
	}
	return slices.ContainsFunc(asked.Scalars, func(s Scalar) bool { return s.Amount > 0 && now.Scalar(s.Name) > before.Scalar(s.Name) })
}

func (p *fit) PreFilter(pod *Pod, s *Snapshot) PreFilterResult {
	check := &fitCheck{plugin: p, requests: &pod.Requests, hasRequests: pod.Requests.any()}
	if len(pod.Requests.Scalars) > 0 {
		check.byDevices = deviceClassesOf(pod, s.devices)
	}
	return PreFilterResult{Check: check, Uncached: check.byDevices != nil}
}

// any reports whether any resource is requested.
func (r *Resources) any() bool {
	return r.MilliCPU != 0 || r.Memory != 0 || r.EphemeralStorage != 0 || len(r.Scalars) != 0
}

type fitCheck struct {
	plugin      *fit
	requests    *Resources
	hasRequests bool
	// byDevices holds the extended resources that DynamicResources allocates on nodes that have none from a device plugin.
	byDevices map[corev1.ResourceName]*resourcev1.DeviceClass
}

func (c *fitCheck) Filter(n *Node) *Status {
	var short shortage
	if int64(len(n.Pods))+1 > n.Allocatable.AllowedPods {
		short |= ofPods
	}
	if c.hasRequests {
		r := c.requests
		short |= lack(r.MilliCPU, n.Allocatable.MilliCPU, n.Requested.MilliCPU, ofCPU)
		short |= lack(r.Memory, n.Allocatable.Memory, n.Requested.Memory, ofMemory)
		short |= lack(r.EphemeralStorage, n.Allocatable.EphemeralStorage, n.Requested.EphemeralStorage, ofEphemeralStorage)
		if len(r.Scalars) > 0 {
			return c.filterScalars(n, short)
		}
	}
	if short == 0 {
		return nil
	}
	return c.refusal(short)
}

func lack(asked, allocatable, requested int64, what shortage) shortage {
	if asked <= 0 || asked <= allocatable-requested {
		return 0
	}
	if asked > allocatable {
		return what | noWay
	}
	return what
}

func (c *fitCheck) filterScalars(n *Node, short shortage) *Status {
	var reasons []string
	for _, s := range c.requests.Scalars {
		if c.plugin.ignores(s.Name) {
			continue
		}
		allocatable := n.Allocatable.Scalar(s.Name)
		if allocatable == 0 && c.byDevices[s.Name] != nil {
			continue
		}
		if s.Amount <= 0 || s.Amount <= allocatable-n.Requested.Scalar(s.Name) {
			continue
		}
		if s.Amount > allocatable {
			short |= noWay
		}
		reasons = append(reasons, "Insufficient "+string(s.Name))
	}
	if len(reasons) > 0 {
		return short.status(reasons...)
	}
	if short == 0 {
		return nil
	}
	return c.refusal(short)
}

func (c *fitCheck) refusal(short shortage) *Status {
	if s := c.plugin.refused[short]; s != nil {
		return s
	}
	return short.status()
}

func (p *fit) ignores(name corev1.ResourceName) bool {
	if len(p.ignored)+len(p.ignoredGroups) == 0 || !IsExtended(name) {
		return false
	}
	group, _, _ := strings.Cut(string(name), "/")
	return slices.Contains(p.ignored, string(name)) || slices.Contains(p.ignoredGroups, group)
}

func (p *fit) PreScore(pod *Pod, _ *Snapshot, _ []*Node) (Scorer, *Status) {
	requests := &pod.Requests
	if pod.scoreRequests != nil {
		requests = pod.scoreRequests
	}
	parts := make([]part, 0, len(p.resources))
	for _, r := range p.resources {
		name := corev1.ResourceName(r.Name)
		part := part{kind: kindOf(name), name: name, weight: r.Weight}
		switch part.kind {
		case cpu:
			part.request = pod.scoreNonZero.MilliCPU
		case memory:
			part.request = pod.scoreNonZero.Memory
		default:
			part.request = requests.Of(name)
		}
		if part.counts() {
			parts = append(parts, part)
		}
	}
	return &fitScorer{parts: parts, strategy: p.strategy}, nil
}
