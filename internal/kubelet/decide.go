package kubelet

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/probe"
	"skiff/internal/kubelet/status"
)

// observed is all that decide takes into account.
type observed struct {
	pod              *corev1.Pod
	runtime          *cri.Pod
	status           *corev1.PodStatus                                           // the status computed from pod and runtime
	probeFailures    func(id string) *probe.Failure                              // why a probe wants a container killed, by container id; nil if none does
	backOffs         map[string]backOff                                          // by backOffKey
	updatedResources map[string]*runtimeapi.LinuxContainerResources              // what containers were given since they were created, by id
	resources        func(*corev1.Container) *runtimeapi.LinuxContainerResources // the resources a container is to have
	restartAll       bool                                                        // a container exited with a code whose restart rule is RestartAllContainers
	now              time.Time
}

// plan is what to do about a pod that is to run. It is executed in the order of the fields.
type plan struct {
	StopPod bool        // stop all containers and sandboxes
	Stop    []stopping  // containers to stop
	Update  []updating  // running containers whose resources are to be changed
	Remove  []removal   // runs of containers to remove
	Sandbox *newSandbox // the sandbox to create, nil if none is
	In      string      // the id of the sandbox that containers are started in, if none is created
	Attempt uint32      // the attempt number of the sandbox
	Start   []starting  // containers to start
	Wait    []waiting   // containers whose back-off is not over
}

// idle reports whether there is nothing to do now.
func (p *plan) idle() bool {
	return !p.StopPod && len(p.Stop) == 0 && len(p.Update) == 0 && len(p.Remove) == 0 && p.Sandbox == nil && len(p.Start) == 0
}

// newSandbox is a sandbox to create. Replaces is the id of the sandbox it takes the place of, "" if there was none.
type newSandbox struct{ Replaces string }

// stopping is a container to stop.
type stopping struct {
	ID, Name string
	Message  string // the message of the Killing event
	Grace    *int64 // the grace period in seconds of the probe that failed, nil for the pod's
}

// removal is a run of a container to remove.
type removal struct {
	ID, Name string
	Kill     bool // kill it first
	KeepLogs bool
}

// kind is the kind of a container, as metrics name it.
type kind string

const (
	initContainer      kind = "init_container"
	sidecarContainer   kind = "sidecar"
	ordinaryContainer  kind = "container"
	ephemeralContainer kind = "ephemeral_container"
)

// starting is a container to start.
type starting struct {
	Kind      kind
	Container *corev1.Container
	Target    string    // for an ephemeral container: the container whose process namespace it joins
	Ended     time.Time // when its last run exited; zero if there was none
}

// waiting is a container that is to be started when its back-off is over.
type waiting struct {
	Container *corev1.Container
	Delay     time.Duration
	Until     time.Time
}

// backOffKey returns the key of a container's back-off. Another image or other resources start a back-off over.
func backOffKey(c *corev1.Container) string {
	return c.Name + "/" + c.Image + "/" + c.Resources.String()
}

// decide returns what to do about a pod that is to run. It is a pure function.
func decide(o observed) plan {
	need := o.runtime.SandboxNeed(o.pod.Spec.HostNetwork)
	p := plan{In: need.ID, Attempt: need.Attempt}
	switch {
	case o.restartAll:
		p.Remove = o.removeAllRuns()
	case need.Needed:
		o.planNewSandbox(&p, need)
	default:
		o.planContainers(&p)
	}
	return p
}

// planNewSandbox plans the start of a pod in a new sandbox, from its first init container.
func (o *observed) planNewSandbox(p *plan, need cri.SandboxNeed) {
	p.StopPod = o.anythingRunning()
	spec := &o.pod.Spec
	if spec.RestartPolicy == corev1.RestartPolicyNever && need.Attempt != 0 && len(o.runtime.Containers) > 0 {
		return // restartPolicy Never: it has run already
	}
	var containers []starting
	for i := range spec.Containers {
		c := &spec.Containers[i]
		once := spec.RestartPolicy == corev1.RestartPolicyOnFailure
		if c.RestartPolicy != nil {
			once = *c.RestartPolicy == corev1.ContainerRestartPolicyOnFailure
		}
		if last := o.runtime.Find(c.Name); once && last != nil && last.State == cri.Exited && last.ExitCode == 0 {
			continue
		}
		containers = append(containers, starting{Kind: ordinaryContainer, Container: c})
	}
	if len(containers) == 0 && o.anyCreated() {
		return // all containers have succeeded
	}
	p.Sandbox, p.StopPod = &newSandbox{Replaces: need.ID}, !o.runtime.Empty() // a dead sandbox may still hold an address
	for _, c := range o.runtime.Containers {
		if container(spec.InitContainers, c.Name) != nil { // all init containers run again
			p.Remove = append(p.Remove, removal{ID: c.ID, Name: c.Name})
		}
	}
	if len(spec.InitContainers) > 0 {
		c := &spec.InitContainers[0]
		containers = []starting{{Kind: kindOf(c), Container: c}}
	}
	for _, s := range containers {
		o.planStart(p, s)
	}
}

// planContainers plans what to do in the sandbox that there is.
func (o *observed) planContainers(p *plan) {
	spec := &o.pod.Spec
	for i := range spec.EphemeralContainers {
		e := &spec.EphemeralContainers[i]
		if o.runtime.Find(e.Name) == nil {
			p.Start = append(p.Start, starting{Kind: ephemeralContainer, Container: (*corev1.Container)(&e.EphemeralContainerCommon), Target: e.TargetContainerName})
		}
	}
	o.removeOldInitRuns(p)
	var later plan
	if initialized, failed := o.planInitContainers(&later); failed {
		p.StopPod, p.Start = true, nil
		return
	} else if !initialized {
		p.add(&later)
		return
	}
	keep := 0
	for i := range spec.Containers {
		if o.planContainer(&later, &spec.Containers[i]) {
			keep++
		}
	}
	if keep == 0 && !later.starts(ordinaryContainer) {
		p.StopPod, p.Start = true, nil // sidecars alone do not keep a pod alive
		return
	}
	p.add(&later)
}

// add appends the containers of another plan.
func (p *plan) add(more *plan) {
	p.Stop, p.Start, p.Wait = append(p.Stop, more.Stop...), append(p.Start, more.Start...), append(p.Wait, more.Wait...)
	p.Update = append(p.Update, more.Update...)
}

// starts reports whether a container of a kind is to be started, now or after its back-off.
func (p *plan) starts(k kind) bool {
	for _, s := range p.Start {
		if s.Kind == k {
			return true
		}
	}
	return len(p.Wait) > 0
}

// planContainer plans what to do about one of the pod's containers, and reports whether it runs and stays.
func (o *observed) planContainer(p *plan, c *corev1.Container) bool {
	last := o.runtime.Find(c.Name)
	if last == nil || last.State != cri.Running {
		if !status.ShouldStart(o.pod, c, o.runtime) {
			return false
		}
		if last != nil && last.State == cri.Unknown { // it may still be running, and there must never be two
			p.Stop = append(p.Stop, stopping{ID: last.ID, Name: c.Name, Message: fmt.Sprintf("Container is in %q state, try killing it before restart", last.State)})
		}
		o.planStart(p, starting{Kind: ordinaryContainer, Container: c})
		return false
	}
	restart := o.pod.Spec.RestartPolicy != corev1.RestartPolicyNever
	if c.RestartPolicy != nil {
		restart = *c.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	s := stopping{ID: last.ID, Name: c.Name}
	failure := o.probeFailure(last)
	switch {
	case last.Hash != cri.Hash(c):
		s.Message, restart = fmt.Sprintf("Container %s definition changed", c.Name), true
	case failure != nil:
		s.Message, s.Grace = failure.Message, failure.GracePeriodSeconds
	case o.planResize(p, c, last):
		s.Message = fmt.Sprintf("Container %s resize requires restart", c.Name)
		p.Stop = append(p.Stop, s)
		o.planStart(p, starting{Kind: ordinaryContainer, Container: c})
		return false
	default:
		return true
	}
	if restart {
		s.Message += ", will be restarted"
		o.planStart(p, starting{Kind: ordinaryContainer, Container: c})
	}
	p.Stop = append(p.Stop, s)
	return false
}

// planResize plans to give a running container the resources it should have, and reports whether that takes a restart.
func (o *observed) planResize(p *plan, c *corev1.Container, last *cri.Container) (restart bool) {
	if o.resources == nil {
		return false
	}
	desired := o.resources(c)
	current := last.Given
	if updated, ok := o.updatedResources[last.ID]; ok {
		current = updated
	}
	differs, restart, shrinks := resourcesDiffer(c, current, desired)
	if differs && !restart {
		p.Update = append(p.Update, updating{ID: last.ID, Name: c.Name, To: desired, Shrinks: shrinks})
	}
	return restart
}

// planStart plans to start a container, or to wait if its back-off is not over.
func (o *observed) planStart(p *plan, s starting) {
	for _, c := range o.runtime.Containers {
		if c.Name != s.Container.Name || c.State != cri.Exited {
			continue
		}
		b := o.backOffs[backOffKey(s.Container)]
		if until := b.until(c.FinishedAt); o.now.Before(until) {
			p.Wait = append(p.Wait, waiting{Container: s.Container, Delay: b.delay, Until: until})
			return
		}
		s.Ended = c.FinishedAt
		break
	}
	p.Start = append(p.Start, s)
}

// probeFailure returns why a probe wants a container killed, nil if none does.
func (o *observed) probeFailure(c *cri.Container) *probe.Failure {
	if o.probeFailures == nil {
		return nil
	}
	return o.probeFailures(c.ID)
}

// anythingRunning reports whether a container runs or a sandbox is ready.
func (o *observed) anythingRunning() bool {
	return len(o.runtime.Running()) > 0 || slices.ContainsFunc(o.runtime.Sandboxes, func(s *runtimeapi.PodSandboxStatus) bool {
		return s.State == runtimeapi.PodSandboxState_SANDBOX_READY
	})
}

// anyCreated reports whether one of the pod's containers was ever created.
func (o *observed) anyCreated() bool {
	for i := range o.pod.Spec.Containers {
		if c := o.runtime.Find(o.pod.Spec.Containers[i].Name); c != nil && c.State != cri.Unknown {
			return true
		}
	}
	return false
}

// anyActive reports whether one of the pod's containers is in its sandbox, which means that all init containers are complete.
func (o *observed) anyActive() bool {
	for i := range o.pod.Spec.Containers {
		if o.runtime.FindActive(o.pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

// removeAllRuns returns the removals of all runs of containers. The run whose exit triggered RestartAllContainers comes last.
func (o *observed) removeAllRuns() (out []removal) {
	var triggers []removal
	add := func(c *corev1.Container) {
		for _, r := range o.runtime.Containers {
			if r.Name != c.Name {
				continue
			}
			if rule := status.MatchingRule(c, r.ExitCode); r.State == cri.Exited && rule != nil && rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
				triggers = append(triggers, removal{ID: r.ID, Name: r.Name, KeepLogs: true})
				continue
			}
			out = append(out, removal{ID: r.ID, Name: r.Name, Kill: r.State != cri.Exited, KeepLogs: true})
		}
	}
	for i := range o.pod.Spec.Containers {
		add(&o.pod.Spec.Containers[i])
	}
	for i := range o.pod.Spec.InitContainers {
		add(&o.pod.Spec.InitContainers[i])
	}
	return append(out, triggers...)
}

// kindOf returns the kind of an init container.
func kindOf(c *corev1.Container) kind {
	if status.IsSidecar(c) {
		return sidecarContainer
	}
	return initContainer
}

// container returns the container of a name, nil if there is none.
func container(list []corev1.Container, name string) *corev1.Container {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}
