package cri

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// State is the state of a container.
type State string

const (
	Created State = "created"
	Running State = "running"
	Exited  State = "exited"
	Unknown State = "unknown"
)

// Pod is what the runtime knows of a pod. It is not changed once it was made.
type Pod struct {
	UID        types.UID
	Sandboxes  []*runtimeapi.PodSandboxStatus // latest first
	Containers []*Container                   // latest first; there are several runs of a container that was restarted
}

// Container is what the runtime knows of one run of a container.
type Container struct {
	ID        string
	Name      string
	Sandbox   string // the id of its sandbox
	State     State
	CreatedAt time.Time
	StartedAt time.Time

	// The next four are set for a container that has exited.
	FinishedAt time.Time
	ExitCode   int32
	Reason     string
	Message    string // the runtime's message, and the container's termination message

	Image        string // as the runtime names it
	ImageRef     string // with digest
	ImageID      string
	Hash         string
	RestartCount int32
	LogPath      string
	User         *runtimeapi.ContainerUser
	Resources    *runtimeapi.LinuxContainerResources // what the runtime reports
	Given        *runtimeapi.LinuxContainerResources // the CPU shares and limits it was created with; nil if that is not known

	labels, annotations map[string]string
}

// Find returns the latest run of a container, or nil.
func (p *Pod) Find(name string) *Container {
	for _, c := range p.Containers {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// FindActive returns the latest run of a container in the pod's latest sandbox, or nil.
func (p *Pod) FindActive(name string) *Container {
	for _, c := range p.Containers {
		if c.Name == name && p.Active(c) {
			return c
		}
	}
	return nil
}

// Active reports whether a container is in the pod's latest sandbox and that is ready.
func (p *Pod) Active(c *Container) bool {
	return len(p.Sandboxes) > 0 && p.Sandboxes[0].State == runtimeapi.PodSandboxState_SANDBOX_READY && c.Sandbox == p.Sandboxes[0].Id
}

// Running returns the containers that run, or whose state is unknown.
func (p *Pod) Running() (out []*Container) {
	for _, c := range p.Containers {
		if c.State == Running || c.State == Unknown {
			out = append(out, c)
		}
	}
	return out
}

// IPs returns the pod's IPs: those of its latest sandbox, if that is ready.
func (p *Pod) IPs() (out []string) {
	if len(p.Sandboxes) == 0 || p.Sandboxes[0].State != runtimeapi.PodSandboxState_SANDBOX_READY {
		return nil
	}
	return IPs(p.Sandboxes[0])
}

// OnNodeNetwork reports whether the pod's latest sandbox is on the host network.
func (p *Pod) OnNodeNetwork() bool { return len(p.Sandboxes) > 0 && onNodeNetwork(p.Sandboxes[0]) }

func onNodeNetwork(s *runtimeapi.PodSandboxStatus) bool {
	return s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

// IPs returns the IPs of a sandbox. Invalid ones are left out.
func IPs(s *runtimeapi.PodSandboxStatus) (out []string) {
	add := func(ip string) {
		if a, err := netip.ParseAddr(ip); err == nil {
			out = append(out, a.String())
		}
	}
	if n := s.GetNetwork(); n != nil {
		add(n.Ip)
		for _, more := range n.AdditionalIps {
			add(more.Ip)
		}
	}
	return out
}

// Empty reports whether the runtime has nothing of the pod.
func (p *Pod) Empty() bool { return len(p.Sandboxes) == 0 && len(p.Containers) == 0 }

// With returns the pod with another sandbox.
func (p *Pod) With(s *runtimeapi.PodSandboxStatus) *Pod {
	now := &Pod{UID: p.UID, Sandboxes: append(slices.Clone(p.Sandboxes), s), Containers: slices.Clone(p.Containers)}
	now.sort()
	return now
}

func (p *Pod) sort() {
	slices.SortFunc(p.Sandboxes, func(a, b *runtimeapi.PodSandboxStatus) int {
		return cmp.Or(cmp.Compare(b.Metadata.GetAttempt(), a.Metadata.GetAttempt()), cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.Id, b.Id))
	})
	slices.SortFunc(p.Containers, func(a, b *Container) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.RestartCount, a.RestartCount), cmp.Compare(a.ID, b.ID))
	})
}

// container converts the runtime's status of a container.
func container(s *runtimeapi.ContainerStatus, sandbox string) *Container {
	restarts, _ := strconv.ParseInt(s.Annotations[annotationRestartCount], 10, 32)
	c := &Container{
		ID: s.Id, Name: s.Labels[LabelContainer], Sandbox: sandbox, State: stateOf(s.State), CreatedAt: time.Unix(0, s.CreatedAt),
		Image: s.GetImage().GetImage(), ImageRef: s.ImageRef, ImageID: cmp.Or(s.ImageId, s.ImageRef), Hash: s.Annotations[annotationHash],
		RestartCount: int32(restarts), LogPath: s.LogPath, User: s.User, Resources: s.GetResources().GetLinux(), Given: given(s.Annotations[annotationResources]), labels: s.Labels, annotations: s.Annotations,
	}
	if c.Name == "" {
		c.Name = s.GetMetadata().GetName()
	}
	if c.State != Created {
		c.StartedAt = time.Unix(0, s.StartedAt)
	}
	if c.State == Exited {
		c.FinishedAt, c.ExitCode, c.Reason, c.Message = time.Unix(0, s.FinishedAt), s.ExitCode, s.Reason, s.Message
	}
	return c
}

func stateOf(s runtimeapi.ContainerState) State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return Exited
	}
	return Unknown
}

// SandboxNeed is whether a pod needs a new sandbox, and why.
type SandboxNeed struct {
	Needed  bool
	Attempt uint32 // the attempt number of the sandbox to create, or of the existing one if none is needed
	ID      string // the id of the latest sandbox
	Reason  string // why, as the message of the PodReadyToStartContainers condition
}

// SandboxNeed returns whether the pod needs a new sandbox: it has none, or none that is ready and usable.
func (p *Pod) SandboxNeed(hostNetwork bool) SandboxNeed {
	if len(p.Sandboxes) == 0 {
		return SandboxNeed{Needed: true, Reason: "no pod sandbox exists"}
	}
	newest, ready := p.Sandboxes[0], 0
	for _, s := range p.Sandboxes {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	need := SandboxNeed{Needed: true, Attempt: newest.Metadata.GetAttempt() + 1, ID: newest.Id}
	onHost := onNodeNetwork(newest)
	switch {
	case ready > 1:
		need.Reason = "multiple pod sandboxes are ready and need to be reconciled"
	case newest.State != runtimeapi.PodSandboxState_SANDBOX_READY:
		need.Reason = "pod sandbox is not ready"
	case onHost != hostNetwork:
		need.Reason, need.ID = "network namespace mode changed and sandbox needs to be recreated", ""
	case !hostNetwork && newest.Network != nil && newest.Network.Ip == "":
		need.Reason = "pod sandbox has no IP address"
	default:
		return SandboxNeed{Attempt: newest.Metadata.GetAttempt(), ID: newest.Id}
	}
	return need
}
