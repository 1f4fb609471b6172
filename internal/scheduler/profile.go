package scheduler

import (
	"fmt"

	"skiff/internal/scheduling"
)

// pluginSet is a set of plugins, one bit each, as assigned by numbering.
type pluginSet uint64

// maxPlugins is how many plugins all profiles together may have.
const maxPlugins = 64

// numbering assigns each plugin a bit, the same in all profiles.
type numbering struct {
	bits  map[string]pluginSet
	names []string
}

func (n *numbering) of(plugin string) (pluginSet, error) {
	if bit, ok := n.bits[plugin]; ok {
		return bit, nil
	}
	if len(n.names) == maxPlugins {
		return 0, fmt.Errorf("more than %d different plugins are enabled", maxPlugins)
	}
	if n.bits == nil {
		n.bits = map[string]pluginSet{}
	}
	bit := pluginSet(1) << len(n.names)
	n.bits[plugin] = bit
	n.names = append(n.names, plugin)
	return bit, nil
}

// list returns the names of the plugins of a set.
func (n *numbering) list(set pluginSet) []string {
	var names []string
	for i, name := range n.names {
		if set&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// profile holds the plugins for the pods of one schedulerName, prepared for the queue and the cycle.
type profile struct {
	*scheduling.Profile
	gates      []gate
	interests  [scheduling.Kinds][]interest
	filterBits []pluginSet // in the order of Filters
	preempts   bool
	preemption PreemptionArgs
	percentage int32 // percentageOfNodesToScore; 0: by the size of the cluster
}

type gate struct {
	scheduling.PreEnqueuePlugin
	plugin pluginSet
}

type interest struct {
	scheduling.EventWithHint
	plugin pluginSet
}

// Names of the plugins that the scheduler itself implements.
const (
	defaultPreemption = "DefaultPreemption"
	defaultBinder     = "DefaultBinder"
)

// newProfile prepares a profile. evictionGate keeps pods back whose victims are being evicted. devices may be nil if no profile allocates any.
func newProfile(from Profile, percentage int32, n *numbering, evictionGate scheduling.PreEnqueuePlugin, devices scheduling.Devices) (*profile, error) {
	p := &profile{Profile: from.Profile, preemption: from.Preemption, percentage: percentage}
	if from.PercentageOfNodesToScore != nil {
		p.percentage = *from.PercentageOfNodesToScore
	}
	gates := from.PreEnqueues
	for _, name := range from.PostFilters {
		if name != defaultPreemption {
			return nil, fmt.Errorf("profile %q: PostFilter %q does not exist", from.SchedulerName, name)
		}
		p.preempts = true
		gates = append(gates[:len(gates):len(gates)], evictionGate)
	}
	for _, f := range from.Filters {
		if f.Name() == scheduling.DynamicResources && devices != nil {
			gates = append(gates[:len(gates):len(gates)], &claimGate{f, devices})
		}
	}
	if len(from.Binders) == 0 {
		return nil, fmt.Errorf("at least one bind plugin is needed for profile with scheduler name %q", from.SchedulerName)
	}
	for _, name := range from.Binders {
		if name != defaultBinder {
			return nil, fmt.Errorf("profile %q: Bind %q does not exist", from.SchedulerName, name)
		}
	}
	if from.QueueSort == nil {
		return nil, fmt.Errorf("only one queue sort plugin required for profile with scheduler name %q, but got 0", from.SchedulerName)
	}
	known := pluginSet(0)
	follow := func(plugin scheduling.Plugin) (pluginSet, error) {
		bit, err := n.of(plugin.Name())
		if err != nil || known&bit != 0 {
			return bit, err
		}
		known |= bit
		for _, i := range plugin.EventsToRegister() {
			p.interests[i.Kind] = append(p.interests[i.Kind], interest{i, bit})
		}
		return bit, nil
	}
	for _, g := range gates {
		bit, err := follow(g)
		if err != nil {
			return nil, err
		}
		p.gates = append(p.gates, gate{g, bit})
	}
	for _, f := range from.Filters {
		bit, err := follow(f)
		if err != nil {
			return nil, err
		}
		p.filterBits = append(p.filterBits, bit)
	}
	return p, nil
}

// interested returns the plugins that an event may make change their verdict.
func (p *profile) interested(e scheduling.Event) (set pluginSet) {
	if p == nil {
		return 0
	}
	for _, i := range p.interests[e.Kind] {
		if i.Actions&e.Action != 0 {
			set |= i.plugin
		}
	}
	return set
}
