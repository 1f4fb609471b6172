package kubelettest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
)

// Runtime is a fake container runtime.
type Runtime struct {
	mu         sync.Mutex
	next       int
	down       bool
	sandboxes  map[string]*sandbox
	containers map[string]*container
	images     map[string]*Image // by name
	scripts    map[string]Script
	failures   map[string][]error // the errors of the next calls, by method
	delays     map[string]time.Duration
	calls      []string
	streams    map[*stream]bool
	execs      func(id string, command []string) (*runtimeapi.ExecSyncResponse, error)
	nextIP     int
	memory     map[string]uint64 // the memory usage of pods, by pod name
}

var _ cri.Runtime = (*Runtime)(nil)

type sandbox struct {
	config    *runtimeapi.PodSandboxConfig
	handler   string
	ready     bool
	createdAt int64
	ip        string
}

type container struct {
	sandbox    string
	config     *runtimeapi.ContainerConfig
	state      runtimeapi.ContainerState
	createdAt  int64
	startedAt  int64
	finishedAt int64
	exitCode   int32
	reason     string
	ended      chan struct{} // closed when the container has exited
	stops      []time.Duration
	resources  *runtimeapi.LinuxContainerResources
}

// Image is an image that can be pulled, or is present.
type Image struct {
	Name    string // docker.io/library/nginx:latest
	Size    uint64
	Present bool
	UID     *int64 // the numeric user of the image
	User    string
	Secret  string // the password that is needed to pull it; none if empty
	Err     error  // why it cannot be pulled
}

// Script is how a container behaves. The zero value runs until it is stopped, and exits at once then.
type Script struct {
	Runs       time.Duration // after which time it exits by itself, if EndsItself
	EndsItself bool
	ExitCode   int32
	Reason     string        // the reason of the exit; Completed or Error if empty
	StopTakes  time.Duration // how long it takes to exit when it is stopped
	StartErr   error
}

// NewRuntime returns a runtime with nothing in it.
func NewRuntime() *Runtime {
	return &Runtime{sandboxes: map[string]*sandbox{}, containers: map[string]*container{}, images: map[string]*Image{}, scripts: map[string]Script{},
		failures: map[string][]error{}, delays: map[string]time.Duration{}, streams: map[*stream]bool{}, memory: map[string]uint64{}}
}

// AddImage adds an image to the fake registry and, if it is present, to the runtime.
func (r *Runtime) AddImage(i Image) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.images[i.Name] = &i
}

// Script sets how containers of a name behave from their next start on.
func (r *Runtime) Script(container string, s Script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scripts[container] = s
}

// Fail has the next calls of a method fail, one error each.
func (r *Runtime) Fail(method string, errs ...error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures[method] = append(r.failures[method], errs...)
}

// Delay has calls of a method take long.
func (r *Runtime) Delay(method string, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delays[method] = d
}

// OnExec sets the function that runs the commands of ExecSync.
func (r *Runtime) OnExec(do func(id string, command []string) (*runtimeapi.ExecSyncResponse, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.execs = do
}

// SetDown makes the runtime unavailable and breaks event streams, or makes it available again. Containers keep running meanwhile.
func (r *Runtime) SetDown(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
	if down {
		r.breakStreams()
	}
}

// Calls returns the calls that changed something, in order: "RunPodSandbox web", "StartContainer web/nginx".
func (r *Runtime) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Container is a snapshot of a container.
type Container struct {
	ID     string
	State  runtimeapi.ContainerState
	Config *runtimeapi.ContainerConfig
	Stops  []time.Duration // the grace periods it was asked to stop with
}

// Containers returns the runs of a container of a pod, oldest first.
func (r *Runtime) Containers(uid types.UID, name string) (out []Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range slices.SortedFunc(maps.Keys(r.containers), func(a, b string) int { return cmp.Compare(r.containers[a].createdAt, r.containers[b].createdAt) }) {
		c := r.containers[id]
		if c.config.Labels[cri.LabelPodUID] == string(uid) && c.config.Metadata.Name == name {
			out = append(out, Container{ID: id, State: c.state, Config: c.config, Stops: slices.Clone(c.stops)})
		}
	}
	return out
}

// Sandboxes returns the configurations of a pod's sandboxes.
func (r *Runtime) Sandboxes(uid types.UID) (out []*runtimeapi.PodSandboxConfig) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sandboxes {
		if s.config.Metadata.Uid == string(uid) {
			out = append(out, s.config)
		}
	}
	return out
}

// Empty describes what is left in the runtime, "" if nothing is.
func (r *Runtime) Empty() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.sandboxes)+len(r.containers) == 0 {
		return ""
	}
	return fmt.Sprintf("%d sandboxes and %d containers are left", len(r.sandboxes), len(r.containers))
}

// Exit has a container exit.
func (r *Runtime) Exit(id string, code int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exit(id, code, "")
}

// KillSandbox makes the ready sandbox of a pod not ready, as if its pause container had been killed.
func (r *Runtime) KillSandbox(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, s := range r.sandboxes {
		if s.config.Metadata.Uid == string(uid) && s.ready {
			s.ready = false
			r.send(id, uid, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
		}
	}
}

// begin is called first by every method: it waits for the delay and fails as the test has asked for. If it does not fail, it leaves the runtime locked.
func (r *Runtime) begin(ctx context.Context, method string) error {
	r.mu.Lock()
	delay := r.delays[method]
	if delay > 0 {
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-time.After(delay):
		}
		r.mu.Lock()
	}
	if err := ctx.Err(); err != nil {
		r.mu.Unlock()
		return status.FromContextError(err).Err()
	}
	if r.down {
		r.mu.Unlock()
		return status.Error(codes.Unavailable, "connection refused")
	}
	if errs := r.failures[method]; len(errs) > 0 {
		r.failures[method] = errs[1:]
		r.mu.Unlock()
		return errs[0]
	}
	return nil
}

func (r *Runtime) id() string {
	r.next++
	return fmt.Sprintf("%064x", r.next)
}

func (r *Runtime) called(method string, what ...string) {
	r.calls = append(r.calls, method+" "+strings.Join(what, "/"))
}

func notFound(kind, id string) error {
	return status.Errorf(codes.NotFound, "%s %q: not found", kind, id)
}

func (r *Runtime) exit(id string, code int32, reason string) {
	c := r.containers[id]
	if c == nil || c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	c.state, c.exitCode, c.finishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, code, time.Now().UnixNano()
	c.reason = cmp.Or(reason, map[bool]string{true: "Completed", false: "Error"}[code == 0])
	close(c.ended)
	r.send(id, types.UID(c.config.Labels[cri.LabelPodUID]), runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}
