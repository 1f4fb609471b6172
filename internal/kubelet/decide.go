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

// observed is all that a decision about a pod follows from.
type observed struct {
	pod        *corev1.Pod
	runtime    *cri.Pod
	status     *corev1.PodStatus                                           // as it follows from that
	failed     func(id string) *probe.Failure                              // why probes want a container killed
	backOffs   map[string]backOff                                          // by backOffKey
	updated    map[string]*runtimeapi.LinuxContainerResources              // what containers have been given since they were made, by id
	resources  func(*corev1.Container) *runtimeapi.LinuxContainerResources // that a container is to have
	restartAll bool                                                        // a container has ended in a way that has all of them restarted
	now        time.Time
}

// plan is what to do about a pod that is to run, in the order of the fields.
type plan struct {
	StopPod bool       // stop all its containers, and its sandboxes
	Stop    []stopping // some of them
	Update  []updating // containers that run, and have other resources than they should
	Remove  []removal  // runs of containers that are not needed any more
	Sandbox *making    // make a sandbox
	In      string     // the sandbox that containers are started in, if none is made
	Attempt uint32     // of that sandbox
	Start   []starting
	Wait    []waiting // containers that are to be started later
}

// idle says that there is nothing to do now.
func (p *plan) idle() bool {
	return !p.StopPod && len(p.Stop) == 0 && len(p.Update) == 0 && len(p.Remove) == 0 && p.Sandbox == nil && len(p.Start) == 0
}

// making is a sandbox that is to be made.
type making struct{ Instead string } // of another one, if not empty

// stopping is a container that is to be stopped.
type stopping struct {
	ID, Name string
	Message  string
	Grace    *int64 // in seconds, if a probe that failed says so
}

// removal is a run of a container that is to be removed, after it is killed if it runs.
type removal struct {
	ID, Name string
	Kill     bool
	KeepLogs bool
}

// kind is what a container is to its pod.
type kind string

const (
	initContainer      kind = "init_container"
	sidecarContainer   kind = "sidecar"
	ordinaryContainer  kind = "container"
	ephemeralContainer kind = "ephemeral_container"
)

// starting is a container that is to be started.
type starting struct {
	Kind      kind
	Container *corev1.Container
	Target    string // of an ephemeral container: the container whose processes it sees
	Ended     time.Time
}

// waiting is a container that is to be started at a time.
type waiting struct {
	Container *corev1.Container
	Delay     time.Duration
	Until     time.Time
}

// backOffKey is what a container's back-off belongs to: another image, or other resources, are another try.
func backOffKey(c *corev1.Container) string {
	return c.Name + "/" + c.Image + "/" + c.Resources.String()
}

// decide says what to do about a pod that is to run.
func decide(o observed) plan {
	need := o.runtime.SandboxNeed(o.pod.Spec.HostNetwork)
	p := plan{In: need.ID, Attempt: need.Attempt}
	switch {
	case o.restartAll:
		p.Remove = o.allRuns()
	case need.Needed:
		o.anew(&p, need)
	default:
		o.inSandbox(&p)
	}
	return p
}

// anew starts a pod in a new sandbox, from the beginning.
func (o *observed) anew(p *plan, need cri.SandboxNeed) {
	p.StopPod = o.anythingUp()
	spec := &o.pod.Spec
	if spec.RestartPolicy == corev1.RestartPolicyNever && need.Attempt != 0 && len(o.runtime.Containers) > 0 {
		return // it ran, and does not run twice
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
		return // all of it is done
	}
	p.Sandbox, p.StopPod = &making{Instead: need.ID}, !o.runtime.Empty() // a dead sandbox may still hold an address
	for _, c := range o.runtime.Containers {
		if container(spec.InitContainers, c.Name) != nil { // they all run again
			p.Remove = append(p.Remove, removal{ID: c.ID, Name: c.Name})
		}
	}
	if len(spec.InitContainers) > 0 {
		c := &spec.InitContainers[0]
		containers = []starting{{Kind: kindOf(c), Container: c}}
	}
	for _, s := range containers {
		o.start(p, s)
	}
}

// inSandbox goes on with a pod whose sandbox is there.
func (o *observed) inSandbox(p *plan) {
	spec := &o.pod.Spec
	for i := range spec.EphemeralContainers {
		e := &spec.EphemeralContainers[i]
		if o.runtime.Find(e.Name) == nil {
			p.Start = append(p.Start, starting{Kind: ephemeralContainer, Container: (*corev1.Container)(&e.EphemeralContainerCommon), Target: e.TargetContainerName})
		}
	}
	o.pruneInit(p)
	var later plan
	if initialized, failed := o.initialize(&later); failed {
		p.StopPod, p.Start = true, nil
		return
	} else if !initialized {
		p.add(&later)
		return
	}
	keep := 0
	for i := range spec.Containers {
		if o.container(&later, &spec.Containers[i]) {
			keep++
		}
	}
	if keep == 0 && !later.starts(ordinaryContainer) {
		p.StopPod, p.Start = true, nil // sidecars alone do not keep a pod alive
		return
	}
	p.add(&later)
}

func (p *plan) add(more *plan) {
	p.Stop, p.Start, p.Wait = append(p.Stop, more.Stop...), append(p.Start, more.Start...), append(p.Wait, more.Wait...)
	p.Update = append(p.Update, more.Update...)
}

// starts says whether a container of a kind is to be started, now or later.
func (p *plan) starts(k kind) bool {
	for _, s := range p.Start {
		if s.Kind == k {
			return true
		}
	}
	return len(p.Wait) > 0
}

// container decides about one of the pod's containers. It says whether it runs and is to go on.
func (o *observed) container(p *plan, c *corev1.Container) bool {
	last := o.runtime.Find(c.Name)
	if last == nil || last.State != cri.Running {
		if !status.ToStart(o.pod, c, o.runtime) {
			return false
		}
		if last != nil && last.State == cri.Unknown { // it may be running: never two of it
			p.Stop = append(p.Stop, stopping{ID: last.ID, Name: c.Name, Message: fmt.Sprintf("Container is in %q state, try killing it before restart", last.State)})
		}
		o.start(p, starting{Kind: ordinaryContainer, Container: c})
		return false
	}
	restart := o.pod.Spec.RestartPolicy != corev1.RestartPolicyNever
	if c.RestartPolicy != nil {
		restart = *c.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	s := stopping{ID: last.ID, Name: c.Name}
	failure := o.failure(last)
	switch {
	case last.Hash != cri.Hash(c):
		s.Message, restart = fmt.Sprintf("Container %s definition changed", c.Name), true
	case failure != nil:
		s.Message, s.Grace = failure.Message, failure.GracePeriodSeconds
	case o.resize(p, c, last):
		s.Message = fmt.Sprintf("Container %s resize requires restart", c.Name)
		p.Stop = append(p.Stop, s)
		o.start(p, starting{Kind: ordinaryContainer, Container: c})
		return false
	default:
		return true
	}
	if restart {
		s.Message += ", will be restarted"
		o.start(p, starting{Kind: ordinaryContainer, Container: c})
	}
	p.Stop = append(p.Stop, s)
	return false
}

// resize gives a container that runs the resources it should have. It says whether that takes a restart.
func (o *observed) resize(p *plan, c *corev1.Container, last *cri.Container) (restart bool) {
	if o.resources == nil {
		return false
	}
	should := o.resources(c)
	has := last.Given
	if since, ok := o.updated[last.ID]; ok {
		has = since
	}
	differs, restart, shrinks := changed(c, has, should)
	if differs && !restart {
		p.Update = append(p.Update, updating{ID: last.ID, Name: c.Name, To: should, Shrinks: shrinks})
	}
	return restart
}

// start starts a container, or has it wait if it keeps ending.
func (o *observed) start(p *plan, s starting) {
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

func (o *observed) failure(c *cri.Container) *probe.Failure {
	if o.failed == nil {
		return nil
	}
	return o.failed(c.ID)
}

// anythingUp says whether there is something to stop.
func (o *observed) anythingUp() bool {
	return len(o.runtime.Running()) > 0 || slices.ContainsFunc(o.runtime.Sandboxes, func(s *runtimeapi.PodSandboxStatus) bool {
		return s.State == runtimeapi.PodSandboxState_SANDBOX_READY
	})
}

// anyCreated says whether one of the pod's containers was ever created.
func (o *observed) anyCreated() bool {
	for i := range o.pod.Spec.Containers {
		if c := o.runtime.Find(o.pod.Spec.Containers[i].Name); c != nil && c.State != cri.Unknown {
			return true
		}
	}
	return false
}

// anyActive says whether one of the pod's containers is in its sandbox: then all init containers have done their work.
func (o *observed) anyActive() bool {
	for i := range o.pod.Spec.Containers {
		if o.runtime.FindActive(o.pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

// allRuns are all runs of containers: those of the container that has all restarted come last.
func (o *observed) allRuns() (out []removal) {
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

func kindOf(initial *corev1.Container) kind {
	if status.Sidecar(initial) {
		return sidecarContainer
	}
	return initContainer
}

func container(list []corev1.Container, name string) *corev1.Container {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}
