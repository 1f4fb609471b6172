package kubelet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/nodestatus"
)

// runtimeState is the last status that the container runtime reported. It is a nodestatus.Runtime.
type runtimeState struct {
	imageLister // the runtime itself

	mu           sync.Mutex
	statusKnown  bool // the runtime was asked for its status at least once
	version      *runtimeapi.VersionResponse
	runtimeError error // why the runtime is not ready, nil if it is
	networkError error // why the pod network is not ready, nil if it is
	handlers     []*runtimeapi.RuntimeHandler
	features     *runtimeapi.RuntimeFeatures
}

var _ nodestatus.Runtime = (*runtimeState)(nil)

type imageLister interface {
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
}

var errStatusUnknown = errors.New("container runtime status check may not have completed yet")

// name returns the runtime's name, which container IDs in the API begin with.
func (s *runtimeState) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == nil {
		return "containerd"
	}
	return s.version.RuntimeName
}

// StatusKnown reports whether the runtime has been asked for its status at least once.
func (s *runtimeState) StatusKnown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statusKnown
}

// RuntimeError returns why the runtime is not ready, nil if it is.
func (s *runtimeState) RuntimeError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.statusKnown {
		return errStatusUnknown
	}
	return s.runtimeError
}

// NetworkError returns why the pod network is not ready, nil if it is.
func (s *runtimeState) NetworkError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.statusKnown {
		return errStatusUnknown
	}
	return s.networkError
}

// Handlers returns the runtime handlers and the features of the runtime.
func (s *runtimeState) Handlers() ([]*runtimeapi.RuntimeHandler, *runtimeapi.RuntimeFeatures) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handlers, s.features
}

// recursiveReadOnly reports whether the runtime's default handler supports recursive read-only mounts.
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

// set takes the answers of the runtime to Version and Status, and reports whether its readiness changed.
func (s *runtimeState) set(version *runtimeapi.VersionResponse, status *runtimeapi.StatusResponse, err error) (changed bool) {
	var network error
	if err == nil {
		err, network = readConditions(status.GetStatus())
	} else {
		network = errors.New("the container runtime does not answer")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = !s.statusKnown || errorText(s.runtimeError) != errorText(err) || errorText(s.networkError) != errorText(network)
	s.statusKnown, s.runtimeError, s.networkError = true, err, network
	if version != nil {
		s.version, s.handlers, s.features = version, status.GetRuntimeHandlers(), status.GetFeatures()
	}
	return changed
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// readConditions returns why the runtime and its network are not ready, by the conditions of the runtime's status.
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

const (
	runtimePoll      = 5 * time.Second        // how often the runtime is asked for its status
	runtimeFirstPoll = 100 * time.Millisecond // how often it is asked until it is ready, for the first 30 seconds
)

// watchRuntime polls the runtime's status until ctx ends. When its readiness changes the node's status is reported, and pods are synced if it became ready.
func (k *Kubelet) watchRuntime(ctx context.Context) {
	firstPolls := time.Now().Add(30 * time.Second)
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
			k.node.ReportNow()
			if k.runtime.RuntimeError() == nil && k.runtime.NetworkError() == nil {
				k.wakeAll()
			}
			k.log.Debug("the readiness of the container runtime changed", "error", err)
		}
		pause := runtimePoll
		if time.Now().Before(firstPolls) && (k.runtime.RuntimeError() != nil || k.runtime.NetworkError() != nil) {
			pause = runtimeFirstPoll
		}
		sleep(ctx, pause)
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Version returns the runtime's name and version, "containerd://2.4.2", or "" if they are not known yet.
func (s *runtimeState) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == nil {
		return ""
	}
	return s.version.RuntimeName + "://" + strings.TrimPrefix(s.version.RuntimeVersion, "v")
}
