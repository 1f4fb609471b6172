package kubelet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeState is how the container runtime is.
type runtimeState struct {
	mu       sync.Mutex
	asked    bool
	version  *runtimeapi.VersionResponse
	err      error // why it is not ready
	network  error // why the network is not
	handlers []*runtimeapi.RuntimeHandler
	features *runtimeapi.RuntimeFeatures
}

var errNotAsked = errors.New("container runtime status check may not have completed yet")

func (s *runtimeState) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == nil {
		return "containerd"
	}
	return s.version.RuntimeName
}

func (s *runtimeState) runtimeError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked {
		return errNotAsked
	}
	return s.err
}

func (s *runtimeState) networkError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked {
		return errNotAsked
	}
	return s.network
}

// recursiveReadOnly says whether the runtime's default way of running pods can mount volumes so that all that is mounted in them is read-only, too.
func (s *runtimeState) recursiveReadOnly() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.handlers {
		if h.Name == "" && h.Features.GetRecursiveReadOnlyMounts() {
			return true
		}
	}
	return false
}

// set takes an answer of the runtime, and says whether it is another than before.
func (s *runtimeState) set(version *runtimeapi.VersionResponse, status *runtimeapi.StatusResponse, err error) (changed bool) {
	var network error
	if err == nil {
		err, network = readConditions(status.GetStatus())
	} else {
		network = errors.New("the container runtime does not answer")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = !s.asked || text(s.err) != text(err) || text(s.network) != text(network)
	s.asked, s.err, s.network = true, err, network
	if version != nil {
		s.version, s.handlers, s.features = version, status.GetRuntimeHandlers(), status.GetFeatures()
	}
	return changed
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// readConditions are what the runtime says is missing.
func readConditions(s *runtimeapi.RuntimeStatus) (runtime, network error) {
	runtime = errors.New("container runtime not ready")
	network = errors.New("container runtime network not ready")
	for _, c := range s.GetConditions() {
		var err error
		if !c.Status {
			err = fmt.Errorf("%s=false reason:%s message:%s", c.Type, c.Reason, c.Message)
		}
		switch c.Type {
		case runtimeapi.RuntimeReady:
			if runtime = err; err != nil {
				runtime = fmt.Errorf("container runtime not ready: %w", err)
			}
		case runtimeapi.NetworkReady:
			if network = err; err != nil {
				network = fmt.Errorf("container runtime network not ready: %w", err)
			}
		}
	}
	return runtime, network
}

// How often the runtime is asked how it is: often until it is ready.
const (
	runtimePoll     = 5 * time.Second
	runtimePollSoon = 100 * time.Millisecond
)

// watchRuntime asks the runtime how it is, again and again.
func (k *Kubelet) watchRuntime(ctx context.Context) {
	soon := time.Now().Add(30 * time.Second) // after that, it is not about to be ready
	for ctx.Err() == nil {
		version, err := k.options.Runtime.Version(ctx)
		var status *runtimeapi.StatusResponse
		if err == nil {
			status, err = k.options.Runtime.Status(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if k.runtime.set(version, status, err) {
			k.postNode()
			if k.runtime.runtimeError() == nil && k.runtime.networkError() == nil {
				k.wakeAll()
			}
			k.log.Debug("container runtime", "error", err)
		}
		pause := runtimePoll
		if time.Now().Before(soon) && (k.runtime.runtimeError() != nil || k.runtime.networkError() != nil) {
			pause = runtimePollSoon
		}
		sleep(ctx, pause)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// describe is the runtime's name and version, as nodes have it.
func (s *runtimeState) describe() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == nil {
		return ""
	}
	return s.version.RuntimeName + "://" + strings.TrimPrefix(s.version.RuntimeVersion, "v")
}
