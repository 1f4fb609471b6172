package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	nodelisters "k8s.io/client-go/listers/node/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"skiff/internal/client"
	"skiff/internal/kubelet/cgroup"
	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/csi"
	"skiff/internal/kubelet/devices"
	"skiff/internal/kubelet/dra"
	"skiff/internal/kubelet/environment"
	"skiff/internal/kubelet/eviction"
	"skiff/internal/kubelet/housekeeping"
	"skiff/internal/kubelet/image"
	"skiff/internal/kubelet/machine"
	"skiff/internal/kubelet/nodestatus"
	"skiff/internal/kubelet/podcertificate"
	"skiff/internal/kubelet/podlogs"
	"skiff/internal/kubelet/probe"
	"skiff/internal/kubelet/status"
	"skiff/internal/kubelet/volume"
)

// Options of New.
type Options struct {
	Client   *client.Client // acts as system:node:NodeName
	NodeName string
	NodeIPs  []string // one per IP family, the primary one first
	Labels   map[string]string
	Taints   []corev1.Taint // the taints the node registers with
	Port     int32          // the port of the kubelet's server; 10250 if zero

	Runtime   cri.Runtime
	Volumes   Volumes   // a volume.Manager below RootDir if nil
	Cgroups   Cgroups   // a cgroup.Manager at the root of the hierarchy if nil
	HostPorts HostPorts // nil if host ports are not the kubelet's to set up
	// CSIDrivers are CSI drivers that run in this process, by name. They are called directly, and are in the CSINode as if they had registered.
	CSIDrivers map[string]csispec.NodeServer
	// ReservedPorts are ports that programs of the node listen on; a pod with one of them as a host port is rejected.
	ReservedPorts []ReservedPort

	// SandboxSeccomp is a file with the seccomp profile of pause containers; the runtime's default if empty.
	SandboxSeccomp string

	RootDir         string // "/var/lib/kubelet" if empty
	LogDir          string // "/var/log/pods" if empty
	ContainerLogDir string // has links into LogDir; "/var/log/containers" if empty
	// ResolvConf are the files that may have the node's resolver configuration (environment.HostResolver); /etc/resolv.conf and systemd-resolved's if nil.
	ResolvConf []string

	ClusterDNS    []string
	ClusterDomain string // "cluster.local" if empty

	MaxPods       int                 // 110 if zero
	PodPidsLimit  int64               // the most processes a pod may have, if Cgroups is nil; no limit if zero
	Capacity      corev1.ResourceList // overrides what the machine has, resource by resource
	ParallelPulls int                 // how many images are pulled in parallel; 5 if zero

	// Eviction are the eviction thresholds; eviction.Default if empty.
	Eviction eviction.Thresholds
	// PressureEvery is how often the thresholds are checked; 10 s if zero.
	PressureEvery time.Duration

	// Stage, if set, is called when a stage of a pod's start ends, for the journey. It must not block.
	Stage func(Stage)
	Log   *slog.Logger
}

func (o *Options) setDefaults() error {
	switch {
	case o.Client == nil, o.Runtime == nil:
		return errors.New("kubelet: Client and Runtime must be set")
	case o.NodeName == "":
		return errors.New("kubelet: NodeName must be set")
	case len(o.NodeIPs) == 0:
		return fmt.Errorf("kubelet: NodeIPs of node %s must be set", o.NodeName)
	}
	o.RootDir, o.LogDir = cmp.Or(o.RootDir, "/var/lib/kubelet"), cmp.Or(o.LogDir, "/var/log/pods")
	o.ContainerLogDir = cmp.Or(o.ContainerLogDir, "/var/log/containers")
	if o.ResolvConf == nil {
		o.ResolvConf = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}
	}
	o.ClusterDomain, o.MaxPods, o.Port = cmp.Or(o.ClusterDomain, "cluster.local"), cmp.Or(o.MaxPods, 110), cmp.Or(o.Port, 10250)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Eviction, o.PressureEvery = cmp.Or(o.Eviction, eviction.Default), cmp.Or(o.PressureEvery, 10*time.Second)
	if o.Stage == nil {
		o.Stage = func(Stage) {}
	}
	return nil
}

// Kubelet runs the pods of a node.
type Kubelet struct {
	options       Options
	log           *slog.Logger
	machine       *machine.Machine
	recorder      record.EventRecorder
	observer      *cri.Observer
	images        *image.Puller
	writer        *status.Writer
	probes        *probe.Manager
	objects       *Objects
	csi           *csi.Plugin
	devices       *devices.Manager
	dra           *dra.Manager
	logs          *podlogs.Manager
	ports         hostPorts
	housekeeping  *housekeeping.Manager
	backOffs      backOffs
	metrics       *metrics
	relistMonitor loopMonitor

	informers      informers.SharedInformerFactory
	pods           informers.SharedInformerFactory // pods of this node
	podLister      corelisters.PodLister
	serviceLister  corelisters.ServiceLister
	runtimeClasses nodelisters.RuntimeClassLister
	synced         chan struct{} // closed when all pods of the API have their workers

	measure   func(context.Context) (eviction.Signals, error)
	node      *nodestatus.Manager
	runtime   runtimeState
	admission sync.Mutex // held while a pod is admitted or resized: two pods must not both get the last of a resource

	mu          sync.Mutex
	workers     map[types.UID]*worker
	stopping    bool           // no more workers are started
	workerGroup sync.WaitGroup // the goroutines of workers

	// callCtx is the context of calls that are not to be canceled half-way when the kubelet stops: it ends callsTimeout after runCtx.
	callCtx context.Context
	// runCtx is the context of Run.
	runCtx context.Context
}

// callsTimeout is how long runtime calls in flight may take when the kubelet stops.
const callsTimeout = 5 * time.Second

// New returns a kubelet that does nothing before Run.
func New(o Options) (*Kubelet, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	m, err := machine.Read(machine.Options{RootDir: o.RootDir, MaxPods: o.MaxPods, Capacity: o.Capacity})
	if err != nil {
		return nil, fmt.Errorf("failed to read what this machine has: %w", err)
	}
	k := &Kubelet{options: o, log: o.Log, machine: m, observer: cri.NewObserver(o.Runtime, filepath.Join(o.RootDir, "pods")), objects: &Objects{nodeName: o.NodeName, client: o.Client}, metrics: newMetrics(),
		synced: make(chan struct{}), workers: map[types.UID]*worker{}}
	k.informers = o.Client.Informers(client.InformerOptions{})
	k.objects.csiDrivers = k.informers.Storage().V1().CSIDrivers().Lister()
	k.objects.certificates = podcertificate.New(podcertificate.Options{Client: o.Client, NodeName: o.NodeName, Node: func() *corev1.Node { return k.node.Node() }, Wake: k.wake,
		Recorder: func() record.EventRecorder { return k.recorder }, Log: o.Log})
	k.csi = csi.New(csi.Options{Root: o.RootDir, NodeName: o.NodeName, Source: k.objects, Node: func() *corev1.Node { return k.node.Node() },
		InUseChanged: func() { k.node.ReportNow() }, Event: func(about runtime.Object, kind, reason, message string) {
			k.recorder.Event(about, kind, reason, message)
		}, Log: o.Log}, o.CSIDrivers)
	if k.devices, err = devices.New(devices.Options{Dir: filepath.Join(o.RootDir, "device-plugins"), Changed: func() { k.node.ReportNow() }, Log: o.Log}); err != nil {
		return nil, err
	}
	if k.dra, err = dra.New(dra.Options{Root: o.RootDir, Source: k.objects, Log: o.Log}); err != nil {
		return nil, err
	}
	k.ports.restored = make(chan struct{})
	k.logs = podlogs.New(podlogs.Options{Runtime: o.Runtime, Dir: o.LogDir, LinksDir: o.ContainerLogDir, Log: o.Log})
	k.runtime.imageLister = o.Runtime
	k.node = nodestatus.New(nodestatus.Options{Client: o.Client, NodeName: o.NodeName, NodeIPs: o.NodeIPs, Labels: o.Labels, Taints: o.Taints, Port: o.Port,
		Machine: m, Runtime: &k.runtime, VolumesInUse: k.csi.VolumesInUse, VolumesInUseReported: k.csi.VolumesInUseReported, Devices: k.devices.Resources, Log: o.Log})
	k.measure = k.signals
	if err := k.setDefaults(); err != nil {
		return nil, err
	}
	k.pods = o.Client.Informers(client.InformerOptions{Select: selectField("spec.nodeName", o.NodeName)})
	k.podLister = k.pods.Core().V1().Pods().Lister()
	k.serviceLister = k.informers.Core().V1().Services().Lister()
	k.runtimeClasses = k.informers.Node().V1().RuntimeClasses().Lister()
	k.metrics.registry.MustRegister(counts{k}, &volumeStats{k: k})
	return k, nil
}

// setDefaults creates the volume and cgroup managers if the options have none.
func (k *Kubelet) setDefaults() (err error) {
	o := &k.options
	if o.Volumes == nil {
		o.Volumes = volume.New(volume.Options{Root: filepath.Join(o.RootDir, "pods"), Source: k.objects, Node: k.node.Node, Log: o.Log,
			Plugins: []volume.Plugin{k.csi}, RecursiveReadOnly: func(*corev1.Pod) bool { return k.runtime.recursiveReadOnly() }})
	}
	if o.Cgroups == nil {
		o.Cgroups, err = cgroup.New(cgroup.Options{PodPidsLimit: o.PodPidsLimit, Allocatable: k.machine.Allocatable, Log: o.Log})
	}
	return err
}

// signals measures how much the node has left.
func (k *Kubelet) signals(ctx context.Context) (eviction.Signals, error) {
	var used machine.PodsUsage
	if c, ok := k.options.Cgroups.(interface{ PodsUsage() (cgroup.Usage, error) }); ok {
		used = c.PodsUsage
	}
	return k.machine.Signals(ctx, k.options.RootDir, k.options.Runtime, used)
}

// Run runs the node's pods until ctx ends. Containers keep running then; the next Run finds them.
func (k *Kubelet) Run(ctx context.Context) error {
	for _, dir := range []string{filepath.Join(k.options.RootDir, "pods"), k.options.LogDir, k.options.ContainerLogDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("failed to create the kubelet's directories: %w", err)
		}
	}
	if err := k.options.Cgroups.Setup(); err != nil {
		return fmt.Errorf("failed to create the cgroups of pods: %w", err)
	}
	calls, endCalls := context.WithCancel(context.WithoutCancel(ctx))
	k.callCtx, k.runCtx = calls, ctx
	stopTimer := context.AfterFunc(ctx, func() { time.AfterFunc(callsTimeout, endCalls) })
	defer func() { stopTimer(); endCalls() }()

	events := record.NewBroadcaster(record.WithContext(calls))
	defer events.Shutdown()
	events.StartRecordingToSink(k.options.Client.EventSink())
	k.recorder = events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: k.options.NodeName})
	var err error
	if k.images, err = image.New(image.Options{Runtime: k.options.Runtime, Recorder: k.recorder, Parallel: k.options.ParallelPulls, Pulled: k.metrics.pulled,
		Dir: filepath.Join(k.options.RootDir, "image_manager")}); err != nil {
		return err
	}
	k.writer = status.NewWriter(status.Options{Client: k.options.Client, Log: k.log, Written: k.statusWritten, Changed: k.metrics.count})
	k.probes = probe.New(probe.Options{Exec: k.execForProbe, Recorder: k.recorder, Report: func(u probe.Update) { k.wake(u.Pod) }})
	defer k.probes.Close()
	if err := k.metrics.probes.Register(k.probes); err != nil {
		return err
	}

	if err := k.csi.Restore(); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { k.runPlugins(ctx) })
	defer k.objects.certificates.Close()
	wg.Go(func() { k.writer.Run(ctx) })
	wg.Go(func() { k.node.Run(ctx, k.recorder) })
	wg.Go(func() { k.node.RunLease(ctx) })
	wg.Go(func() { k.watchRuntime(ctx) })
	wg.Go(func() { k.watchRuntimeEvents(ctx) })
	k.housekeeping = k.newHousekeeping()
	wg.Go(func() { k.whenSynced(ctx, k.housekeeping.CollectGarbage) })
	wg.Go(func() { k.logs.Run(ctx) })

	if err := k.startInformers(ctx); err != nil {
		return err
	}
	defer k.stopWorkers()
	wg.Go(func() { k.restorePorts(ctx) })
	wg.Go(func() { k.whenSynced(ctx, k.housekeeping.RunEviction) })
	wg.Go(func() { k.whenSynced(ctx, k.relist) })
	<-ctx.Done()
	return nil
}

// newHousekeeping returns the housekeeping of this node.
func (k *Kubelet) newHousekeeping() *housekeeping.Manager {
	o := &k.options
	return housekeeping.New(housekeeping.Options{Runtime: o.Runtime, Pods: podWorkers{k}, Node: k.node, Logs: k.logs, Images: k.images, Recorder: k.recorder,
		RootDir: o.RootDir, Log: k.log, Leftovers: []func() ([]types.UID, error){o.Volumes.Left, o.Cgroups.Left},
		Measure: k.measure, Thresholds: o.Eviction, EvictionInterval: o.PressureEvery})
}

// whenSynced calls run once all pods of the API have their workers, unless ctx ends before.
func (k *Kubelet) whenSynced(ctx context.Context, run func(context.Context)) {
	select {
	case <-ctx.Done():
	case <-k.synced:
		run(ctx)
	}
}

// startInformers starts the informers, and returns when all pods of the API have their workers.
func (k *Kubelet) startInformers(ctx context.Context) error {
	registration, err := k.pods.Core().V1().Pods().Informer().AddEventHandler(eventHandler(k.podChanged, k.podRemoved))
	if err != nil {
		return err
	}
	k.informers.Core().V1().Services().Informer()
	k.informers.Node().V1().RuntimeClasses().Informer()
	k.informers.Storage().V1().CSIDrivers().Informer()
	k.informers.Start(ctx.Done())
	// Containers get the addresses of services as environment variables, so services come first.
	k.informers.WaitForCacheSync(ctx.Done())
	k.pods.Start(ctx.Done())
	if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) { // all pods have their workers
		close(k.synced)
	}
	return nil
}

// stopWorkers waits until all workers have returned. Containers keep running.
func (k *Kubelet) stopWorkers() {
	k.mu.Lock()
	k.stopping = true
	k.mu.Unlock()
	k.workerGroup.Wait()
}

func (k *Kubelet) isStopping() bool { return k.runCtx.Err() != nil }

// services returns the services whose addresses containers of a namespace get as environment variables: those of the namespace and of default.
func (k *Kubelet) services(namespace string) []*corev1.Service {
	list, err := k.serviceLister.Services(namespace).List(everything)
	if err != nil {
		return nil // listing from a cache does not fail
	}
	if namespace == corev1.NamespaceDefault {
		return list
	}
	if master, err := k.serviceLister.Services(corev1.NamespaceDefault).List(everything); err == nil {
		list = append(slices.Clip(list), master...)
	}
	return list
}

// resolver returns how pods resolve names. The node's resolver configuration is read each time: it changes when a machine moves between networks.
func (k *Kubelet) resolver() environment.Resolver {
	r := environment.Resolver{ClusterDNS: k.options.ClusterDNS, ClusterDomain: k.options.ClusterDomain}
	var err error
	if r.Host, err = environment.HostResolver(k.options.ResolvConf...); err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("failed to read the node's resolver configuration", "error", err)
	}
	return r
}

func (k *Kubelet) environmentNode() environment.Node {
	return environment.Node{IPs: k.options.NodeIPs, Allocatable: k.machine.Allocatable}
}

// volumePath returns a function that finds the directory of a volume, for environment variables that come from files in it.
func (k *Kubelet) volumePath(pod *corev1.Pod) func(string) (string, error) {
	return func(name string) (string, error) { return k.options.Volumes.Path(pod, name) }
}

// stage reports a stage of a pod's start that ends now.
func (k *Kubelet) stage(pod *corev1.Pod, name, container string, start time.Time, err error) {
	k.options.Stage(Stage{Pod: pod, Name: name, Container: container, Start: start, End: time.Now(), Err: err})
}
