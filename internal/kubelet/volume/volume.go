package volume

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
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Source reads the objects that volumes show. For an object that does not exist it returns an apierrors.IsNotFound error.
type Source interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Token requests a new service account token. The manager caches it.
	Token(ctx context.Context, namespace, serviceAccount string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
	TrustBundle(ctx context.Context, name string) (*certificatesv1.ClusterTrustBundle, error)
	TrustBundles(ctx context.Context) ([]*certificatesv1.ClusterTrustBundle, error)
	// Certificate returns the key and the certificate chain, in PEM, that a source of a projected volume shows. waits reports that the signer has not answered yet.
	Certificate(ctx context.Context, pod *corev1.Pod, volume string, source int, spec *corev1.PodCertificateProjection) (keyPEM, chain []byte, waits bool, err error)
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
}

// Options of New.
type Options struct {
	Root   string // the directory of pods, <kubelet root>/pods
	Source Source

	// Node returns the node: its labels decide whether a local volume is here, its allocatable bounds volumes in memory.
	Node func() *corev1.Node
	// RecursiveReadOnly reports whether the runtime of a pod supports recursive read-only mounts.
	RecursiveReadOnly func(pod *corev1.Pod) bool
	// MountProgram is the node's program that mounts NFS; "mount" if empty.
	MountProgram string
	// Plugins mount the volumes that this package does not.
	Plugins []Plugin

	Clock clock.PassiveClock
	Log   *slog.Logger
}

// Manager sets up and removes the volumes of a node's pods. It is safe for concurrent use; calls for one pod must not overlap.
type Manager struct {
	opts   Options
	tokens tokens

	formatting sync.Mutex // held while a local disk is looked at, formatted and mounted

	mu   sync.Mutex
	pods map[types.UID]map[string]volumeState
}

// volumeState is a volume that was set up.
type volumeState struct {
	name     string // the volume's name in the pod, or that of the PersistentVolume behind a claim
	path     string // the path on the node; empty for an image volume
	readOnly bool
	image    string
	device   bool // a block device, not a directory
	managed  bool // the runtime may set its SELinux labels: no other pod uses it
	counted  bool // its content counts as the pod's disk or memory usage
	once     bool // a PersistentVolume with ReadWriteOncePod
	plugin   Plugin
}

// New returns a manager. It does not touch the disk.
func New(opts Options) *Manager {
	opts.MountProgram = cmp.Or(opts.MountProgram, "mount")
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Node == nil {
		opts.Node = func() *corev1.Node { return &corev1.Node{} }
	}
	return &Manager{opts: opts, pods: map[types.UID]map[string]volumeState{}, tokens: tokens{source: opts.Source, clock: opts.Clock, log: opts.Log}}
}

// Failure is a volume that could not be set up. Its text is the message of a FailedMount event.
type Failure struct {
	Volume string
	Stage  string // what failed, in the words of upstream
	Err    error
	Block  bool // it is a block device that cannot be mapped
	Waits  bool // the volume waits for others, a controller that attaches it: no event says so before the pod has waited for long
}

// setUpStage is the stage of most failures.
const setUpStage = "MountVolume.SetUp failed"

func (f *Failure) Error() string {
	if f.Stage == "" {
		return f.Err.Error()
	}
	return fmt.Sprintf("%s for volume %q : %v", f.Stage, f.Volume, f.Err)
}

func (f *Failure) Unwrap() error { return f.Err }

// Failures returns the failures that an error of SetUp has, for one Event each.
func Failures(err error) []*Failure {
	var list []*Failure
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			list = append(list, Failures(e)...)
		}
		return list
	}
	var f *Failure
	if errors.As(err, &f) {
		list = append(list, f)
	}
	return list
}

// SetUp sets up every volume that a container of the pod mounts, and refreshes those that are set up. One that fails does not
// keep others from being set up; the error joins a Failure for each.
func (m *Manager) SetUp(ctx context.Context, pod *corev1.Pod) error {
	if err := checkUID(pod.UID); err != nil {
		return err
	}
	used := usedVolumes(pod)
	made, failed := map[string]volumeState{}, make([]error, len(pod.Spec.Volumes))
	var mu sync.Mutex // guards made
	setUp := func(i int, v *corev1.Volume) {
		r, err := m.setUp(ctx, pod, v)
		if err != nil {
			var f *Failure
			if !errors.As(err, &f) {
				err = &Failure{Volume: v.Name, Stage: setUpStage, Err: err}
			}
			failed[i] = err
			return
		}
		mu.Lock()
		defer mu.Unlock()
		made[v.Name] = r
	}
	var claims sync.WaitGroup // a driver may take its time, and its volume may wait for being attached
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case !used[v.Name]:
		case v.PersistentVolumeClaim != nil, v.Ephemeral != nil, m.plugin(v, nil) != nil:
			claims.Go(func() { setUp(i, v) })
		default:
			setUp(i, v)
		}
	}
	claims.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.pods[pod.UID] {
		if _, again := made[name]; !again && used[name] {
			made[name] = r // it was set up before; running containers use it
		}
	}
	m.pods[pod.UID] = made
	return errors.Join(failed...)
}

// usedVolumes returns the volumes that some container mounts; others are not set up.
func usedVolumes(pod *corev1.Pod) map[string]bool {
	used := map[string]bool{}
	for c := range containers(pod) {
		for _, mount := range c.VolumeMounts {
			used[mount.Name] = true
		}
		for _, device := range c.VolumeDevices {
			used[device.Name] = true
		}
	}
	return used
}

func (m *Manager) setUp(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (volumeState, error) {
	switch {
	case v.EmptyDir != nil:
		dir := m.dir(pod.UID, "empty-dir", v.Name)
		return volumeState{name: v.Name, path: dir, managed: true, counted: true}, m.emptyDir(dir, pod, v.EmptyDir)
	case v.HostPath != nil:
		return volumeState{name: v.Name, path: v.HostPath.Path}, checkHostPath(v.HostPath)
	case v.ConfigMap != nil, v.Secret != nil, v.Projected != nil, v.DownwardAPI != nil:
		return m.content(ctx, pod, v)
	case v.NFS != nil:
		dir := m.dir(pod.UID, "nfs", v.Name)
		return volumeState{name: v.Name, path: dir, readOnly: v.NFS.ReadOnly}, m.nfs(ctx, dir, v.NFS, v.NFS.ReadOnly, nil)
	case v.Image != nil:
		return volumeState{name: v.Name, image: v.Image.Reference, readOnly: true}, nil
	case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
		return m.claim(ctx, pod, v)
	}
	if p := m.plugin(v, nil); p != nil {
		return m.setUpByPlugin(ctx, p, Request{Pod: pod, Volume: v})
	}
	return volumeState{}, unsupported(v)
}

// unsupported returns why a volume of a kind that has no plugin here cannot be mounted.
func unsupported(v *corev1.Volume) error {
	if v.CSI != nil {
		return fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name %s not found in the list of registered CSI drivers",
			v.CSI.Driver)
	}
	if v.GitRepo != nil {
		return errors.New("git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the feature-gate `GitRepoVolumeDriver`")
	}
	return &Failure{Volume: v.Name, Stage: "MountVolume.FindPluginBySpec failed", Err: errors.New("no volume plugin matched")}
}

// Path returns the directory of a pod's volume on the node. It is known once SetUp has set it up.
func (m *Manager) Path(pod *corev1.Pod, volume string) (string, error) {
	r, ok := m.ready(pod.UID, volume)
	if !ok || r.path == "" {
		return "", fmt.Errorf("volume %q is not ready", volume)
	}
	return r.path, nil
}

func (m *Manager) ready(uid types.UID, volume string) (volumeState, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.pods[uid][volume]
	return r, ok
}

// TearDown unmounts everything of a pod and removes its volumes. Its containers must have exited. Nothing of what a volume only shows, the
// files of a persistent volume or a host path, is touched: as long as anything is mounted below the pod's directory no file is removed. What
// others keep in that directory stays; the directory itself goes if nothing is left in it.
func (m *Manager) TearDown(ctx context.Context, uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	dir := m.PodDir(uid)
	err := unmountBelow(ctx, filepath.Join(dir, "volume-subpaths"))
	if err == nil {
		err = m.tearDownPlugins(ctx, uid)
	}
	if err == nil {
		err = unmountBelow(ctx, dir)
	}
	if err != nil {
		return fmt.Errorf("failed to remove the volumes of pod %s: %w", uid, err)
	}
	for _, name := range managedDirs {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("failed to remove the volumes of pod %s: %w", uid, err)
		}
	}
	_ = os.Remove(dir) // it is not empty, or does not exist
	m.tokens.forget(uid)
	m.mu.Lock()
	delete(m.pods, uid)
	m.mu.Unlock()
	return nil
}

// managedDirs are the parts of a pod's directory that this package manages.
var managedDirs = []string{"volumes", "volume-subpaths"}

// Left lists the pods that have volumes on the disk.
func (m *Manager) Left() ([]types.UID, error) {
	entries, err := os.ReadDir(m.opts.Root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("failed to list the volumes of pods: %w", err)
	}
	var uids []types.UID
	for _, e := range entries {
		for _, name := range managedDirs {
			if _, err := os.Lstat(filepath.Join(m.opts.Root, e.Name(), name)); err == nil {
				uids = append(uids, types.UID(e.Name()))
				break
			}
		}
	}
	return uids, nil
}

// PodDir returns the directory of a pod.
func (m *Manager) PodDir(uid types.UID) string { return filepath.Join(m.opts.Root, string(uid)) }

func (m *Manager) dir(uid types.UID, kind, volume string) string {
	return filepath.Join(m.PodDir(uid), "volumes", "kubernetes.io~"+kind, volume)
}

func checkUID(uid types.UID) error {
	if uid == "" || uid == "." || uid == ".." || strings.ContainsAny(string(uid), "/\x00") {
		return fmt.Errorf("the pod's UID %q cannot name a directory", uid)
	}
	return nil
}

// containers iterates over all containers of a pod: init, regular and ephemeral.
func containers(pod *corev1.Pod) func(yield func(*corev1.Container) bool) {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
		for i := range pod.Spec.EphemeralContainers {
			if c := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon); !yield(&c) {
				return
			}
		}
	}
}

// fsGroup returns the group that a pod wants its volumes to belong to.
func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// noBacksteps returns an error for a path with "..".
func noBacksteps(path string) error {
	if slices.Contains(strings.Split(path, "/"), "..") {
		return errors.New("must not contain '..'")
	}
	return nil
}
