package stats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"skiff/internal/kubelet/cgroup"
	"skiff/internal/kubelet/volume"
)

// Runtime is the part of cri.Runtime that stats needs.
type Runtime interface {
	ListPodSandboxes(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ListPodSandboxStats(context.Context, *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error)
	ListContainerStats(context.Context, *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error)
	ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Cgroups is the part of cgroup.Manager that measures.
type Cgroups interface {
	NodeUsage() (cgroup.Usage, error)
	PodsUsage() (cgroup.Usage, error)
	Usage(uid types.UID) (cgroup.Usage, error)
	ContainerUsage(uid types.UID, id string) (cgroup.Usage, error)
}

// Volumes is the part of volume.Manager that measures.
type Volumes interface {
	Usage(ctx context.Context, uid types.UID) ([]volume.Usage, error)
}

// Pods are the pods bound to this node. They are only read.
type Pods interface {
	Pods() []*corev1.Pod
}

// Options of New.
type Options struct {
	NodeName string
	Runtime  Runtime
	Cgroups  Cgroups
	Volumes  Volumes
	Pods     Pods

	RootDir string // the kubelet's directory; "/var/lib/kubelet" if empty
	LogDir  string // the directory of pods' logs; "/var/log/pods" if empty

	Machine Machine // this one if nil
	Clock   clock.Clock
	Log     *slog.Logger
}

const (
	// usageTTL is how long CPU time and memory are cached.
	usageTTL = time.Second
	// minWindow and maxWindow bound the time between the two samples that a rate is computed from. A rate over less is noisy, one over more is outdated.
	minWindow = 5 * time.Second
	maxWindow = 90 * time.Second
	// firstWindow is the time between two samples that are taken for one request, when there was none for maxWindow.
	firstWindow = 200 * time.Millisecond
)

// Provider measures what the node and its pods use.
type Provider struct {
	opts Options
	busy chan struct{} // holds a value while a request measures

	// The fields below belong to the request that measures. What they point at does not change.
	rates map[string]*rate
	last  *reading
	disks *disks
}

// New returns a provider. It measures nothing before Summary is called.
func New(opts Options) *Provider {
	opts.RootDir, opts.LogDir = cmp.Or(opts.RootDir, "/var/lib/kubelet"), cmp.Or(opts.LogDir, "/var/log/pods")
	if opts.Machine == nil {
		opts.Machine = procMachine{}
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Provider{opts: opts, busy: make(chan struct{}, 1), rates: map[string]*rate{}}
}

// Summary returns what the node and its pods use now: CPU time and memory as of the last second, what is on disks as of the last ten. It is the
// caller's to change.
func (p *Provider) Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error) {
	select {
	case p.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r, d, err := p.measure(ctx, onlyCPUAndMemory)
	<-p.busy
	if err != nil {
		return nil, err
	}
	return p.summary(r, d), nil
}

func (p *Provider) measure(ctx context.Context, onlyCPUAndMemory bool) (*reading, *disks, error) {
	now := p.opts.Clock.Now()
	if p.last == nil || now.Sub(p.last.at) > maxWindow {
		// There is no recent sample to compute a rate from.
		clear(p.rates)
		if _, err := p.read(ctx); err != nil {
			return nil, nil, err
		}
		select {
		case <-p.opts.Clock.After(firstWindow):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		p.last = nil
	}
	if p.last == nil || now.Sub(p.last.at) >= usageTTL {
		r, err := p.read(ctx)
		if err != nil {
			return nil, nil, err
		}
		p.last = r
	}
	if onlyCPUAndMemory {
		return p.last, nil, nil
	}
	if p.disks == nil || p.opts.Clock.Since(p.disks.at) >= p.disks.ttl || p.disks.at.Before(p.last.at) && !p.disks.cover(p.last) {
		d, err := p.measureDisks(ctx, p.last)
		if err != nil {
			return nil, nil, err
		}
		p.disks = d
	}
	return p.last, p.disks, nil
}

// reading is the usage of all cgroups at one time.
type reading struct {
	at         time.Time
	node, pods usage
	list       []podReading
}

type podReading struct {
	sandbox    *runtimeapi.PodSandbox
	usage      usage // the usage of the pod's cgroup
	containers []containerReading
}

type containerReading struct {
	*runtimeapi.Container
	usage usage
}

// usage is the usage of a cgroup, with the rate at which it uses CPU time; nil if that is not known.
type usage struct {
	cgroup.Usage
	nanoCores *uint64
}

// read reads the cgroups of all running pods and containers. Those that end meanwhile are left out.
func (p *Provider) read(ctx context.Context) (*reading, error) {
	sandboxes, containers, err := p.running(ctx)
	if err != nil {
		return nil, err
	}
	r, seen := &reading{at: p.opts.Clock.Now()}, map[string]bool{}
	get := func(key string, started time.Time, usageOf func() (cgroup.Usage, error)) (usage, error) {
		u, err := usageOf()
		if err != nil {
			return usage{}, err
		}
		seen[key] = true
		return usage{u, p.nanoCores(key, started, u)}, nil
	}
	if r.node, err = get("node", p.opts.Machine.BootTime(), p.opts.Cgroups.NodeUsage); err != nil {
		return nil, fmt.Errorf("failed to read the usage of the node: %w", err)
	}
	if r.pods, err = get("pods", time.Time{}, p.opts.Cgroups.PodsUsage); err != nil {
		return nil, fmt.Errorf("failed to read the usage of all pods: %w", err)
	}
	for _, s := range sandboxes {
		uid := types.UID(s.Metadata.Uid)
		pod := podReading{sandbox: s}
		pod.usage, err = get("pod "+string(uid), time.Unix(0, s.CreatedAt), func() (cgroup.Usage, error) { return p.opts.Cgroups.Usage(uid) })
		if errors.Is(err, cgroup.ErrNotFound) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("failed to read the usage of pod %s/%s: %w", s.Metadata.Namespace, s.Metadata.Name, err)
		}
		for _, c := range containers[s.Id] {
			u, err := get(c.Id, time.Unix(0, c.CreatedAt), func() (cgroup.Usage, error) { return p.opts.Cgroups.ContainerUsage(uid, c.Id) })
			if errors.Is(err, cgroup.ErrNotFound) {
				continue
			} else if err != nil {
				return nil, fmt.Errorf("failed to read the usage of container %s of pod %s/%s: %w", c.Metadata.Name, s.Metadata.Namespace, s.Metadata.Name, err)
			}
			pod.containers = append(pod.containers, containerReading{c, u})
		}
		r.list = append(r.list, pod)
	}
	for key := range p.rates {
		if !seen[key] {
			delete(p.rates, key)
		}
	}
	return r, nil
}
