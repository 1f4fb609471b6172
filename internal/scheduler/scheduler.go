package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/client"
	"skiff/internal/scheduling"
)

const (
	// maxBinding is how many bindings are in flight at a time. At that number no further pod is scheduled.
	maxBinding = 64
	// binderIdleTime is how long a goroutine that has finished a binding waits for another.
	binderIdleTime = time.Second
	// confirmTimeout is how long after its binding a pod may not have been observed on its node before the API is asked for it.
	confirmTimeout = 30 * time.Second
)

// Options configures a Scheduler.
type Options struct {
	// Client reaches the API as system:kube-scheduler, whose rights suffice.
	Client *client.Client
	// Config is what LoadConfig or LoadPolicy returned; the zero value means DefaultConfig.
	Config Config
	Log    *slog.Logger
}

// Scheduler assigns pods to nodes.
type Scheduler struct {
	client *client.Client
	api    kubernetes.Interface
	config Config
	log    *slog.Logger

	plugins   numbering
	profiles  map[string]*profile
	queue     *queue
	cluster   *cluster
	cycle     cycle
	recorder  *recorder
	statuses  *statuses
	metrics   *metrics
	evictions *evictions
	storage   *storage     // nil if no profile has plugins that read it
	devices   *devices     // the same
	lease     client.Lease // the leader election lease that requests are sent under

	pods      informers.SharedInformerFactory // without terminal pods
	others    informers.SharedInformerFactory
	podLister corelisters.PodLister
	pdbLister policylisters.PodDisruptionBudgetLister
	synced    []cache.DoneChecker

	ctx      context.Context // of background work
	work     sync.WaitGroup  // bindings and evictions in flight
	bindings chan func()     // bindings for idle binders
	binders  chan struct{}   // one slot per binder
	// preBinding has one slot per pod that waits for what it needs before it is bound, writers one per pod for which that is being written.
	preBinding, writers chan struct{}
	waiters             waiters
	ready               chan struct{} // closed when the caches have synced
}

// New prepares a scheduler. Run starts it.
func New(o Options) (*Scheduler, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if len(o.Config.Profiles) == 0 {
		var err error
		if o.Config, err = DefaultConfig(); err != nil {
			return nil, err
		}
	}
	s := &Scheduler{config: o.Config, log: o.Log, profiles: map[string]*profile{}, metrics: newMetrics(), statuses: newStatuses(),
		bindings: make(chan func()), binders: make(chan struct{}, maxBinding),
		preBinding: make(chan struct{}, maxPreBinding), writers: make(chan struct{}, maxBinding), ready: make(chan struct{})}
	var err error
	if s.client, err = o.Client.Under(&s.lease); err != nil {
		return nil, err
	}
	s.api = s.client.Kubernetes()
	s.recorder = newRecorder(s.api, s.log)
	s.pods = s.client.Informers(client.InformerOptions{Select: func(o *metav1.ListOptions) {
		o.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed"
	}})
	s.others = s.client.Informers(client.InformerOptions{})
	s.podLister, s.pdbLister = s.pods.Core().V1().Pods().Lister(), s.others.Policy().V1().PodDisruptionBudgets().Lister()
	s.evictions = &evictions{running: map[types.UID]*eviction{}, isAlive: s.isAlive}
	s.cluster = newCluster(newWorkloads(s.others))
	var hints scheduling.Devices
	if usePlugin(o.Config.Profiles, func(name string) bool { return name == scheduling.DynamicResources }) {
		s.devices = newDevices(s.others)
		s.cluster.last, hints = s.cluster.last.WithDevices(s.devices), s.devices
	}
	for _, from := range o.Config.Profiles {
		p, err := newProfile(from, o.Config.PercentageOfNodesToScore, &s.plugins, s.evictions, hints)
		if err != nil {
			return nil, err
		}
		s.profiles[from.SchedulerName] = p
	}
	if usePlugin(o.Config.Profiles, func(name string) bool { return storagePlugins[name] }) {
		if s.storage, err = newStorage(s.others); err != nil {
			return nil, err
		}
		s.cluster.last = s.cluster.last.WithStorage(s.storage)
	}
	sort := o.Config.Profiles[0].QueueSort
	if i := slices.IndexFunc(o.Config.Profiles, func(p Profile) bool { return p.QueueSort.Name() != sort.Name() }); i >= 0 {
		return nil, fmt.Errorf("profiles[%d].plugins.queueSort: must be the same for all profiles", i)
	}
	s.queue = newQueue(s.profiles, sort, o.Config.PodInitialBackoff, o.Config.PodMaxBackoff, o.Config.PodMaxInUnschedulable)
	s.queue.metrics, s.queue.devices = s.metrics, hints
	s.metrics.registry.MustRegister(s.queue)
	s.cycle.start = rand.IntN(1 << 16) // restarted schedulers should not all begin with the same node
	return s, s.addEventHandlers()
}

// usePlugin reports whether a profile has one of some plugins.
func usePlugin(profiles []Profile, wanted func(name string) bool) bool {
	return slices.ContainsFunc(profiles, func(p Profile) bool {
		return slices.ContainsFunc(p.Filters, func(f scheduling.FilterPlugin) bool { return wanted(f.Name()) }) ||
			slices.ContainsFunc(p.Scores, func(w scheduling.WeightedScore) bool { return wanted(w.Name()) })
	})
}

// Run schedules pods until ctx ends or, with leader election, until the lease is lost, which is an error. It may be called once.
func (s *Scheduler) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var recording sync.WaitGroup
	defer func() {
		stop()
		recording.Wait()
		s.pods.Shutdown()
		s.others.Shutdown()
		s.cluster.close()
	}()
	s.pods.StartWithContext(ctx)
	s.others.StartWithContext(ctx)
	if !cache.WaitFor(ctx, "", s.synced...) {
		return nil
	}
	close(s.ready)
	recording.Go(func() { s.recorder.run(ctx) })
	return s.lease.Lead(ctx, s.client, s.config.LeaderElection, s.log, s.schedule)
}

// WaitReady returns when the caches have synced: pods are scheduled from now on, unless another scheduler leads.
func (s *Scheduler) WaitReady(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ready:
		return nil
	}
}

// WaitForNodes returns when the scheduler has observed nodes in these versions, or in later ones.
func (s *Scheduler) WaitForNodes(ctx context.Context, nodes []corev1.Node) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := 0; i < len(nodes); {
		if s.cluster.hasNode(&nodes[i]) {
			i++
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// schedule schedules pod after pod from the queue until ctx ends and all background work is done.
func (s *Scheduler) schedule(ctx context.Context) {
	s.ctx = ctx
	var work sync.WaitGroup
	work.Go(func() { s.queue.run(ctx) })
	work.Go(func() { s.housekeep(ctx) })
	for range statusWriters {
		work.Go(func() { s.writeStatuses(ctx) })
	}
	work.Go(func() {
		<-ctx.Done()
		s.queue.close()
		s.statuses.close()
	})
	for {
		p := s.queue.pop()
		if p == nil {
			break
		}
		s.scheduleOne(p)
	}
	work.Wait()
	s.work.Wait()
}
