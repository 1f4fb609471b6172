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

// Source is where what volumes show comes from. What does not exist is an apierrors.IsNotFound error.
type Source interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Token asks for a new token of a service account. The manager keeps it for as long as it may be used.
	Token(ctx context.Context, namespace, serviceAccount string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
	TrustBundle(ctx context.Context, name string) (*certificatesv1.ClusterTrustBundle, error)
	TrustBundles(ctx context.Context) ([]*certificatesv1.ClusterTrustBundle, error)
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
}

// Options say where volumes are made and what of.
type Options struct {
	Root   string // directory of pods, <kubelet root>/pods
	Source Source

	// Node is the node as it is now: its labels decide whether a local volume is here, its allocatable bounds volumes in memory.
	Node func() *corev1.Node
	// RecursiveReadOnly says whether the runtime of a pod can make a mount read-only with all mounts in it.
	RecursiveReadOnly func(pod *corev1.Pod) bool

	Clock clock.PassiveClock
	Log   *slog.Logger
}

// Manager makes and removes the volumes of a node's pods. It is safe for concurrent use; calls about one pod must not overlap.
type Manager struct {
	opts   Options
	tokens tokens

	mu   sync.Mutex
	pods map[types.UID]map[string]ready
}

// ready is a volume that was set up.
type ready struct {
	name     string // the pod's name of it, or that of the persistent volume behind a claim
	path     string // on the node; empty for an image
	readOnly bool
	image    string
	device   bool // a block device, not a directory
	managed  bool // its labels are the runtime's to set: it is the pod's alone
	counted  bool // what is in it is the pod's use of the disk, or of memory
	once     bool // a persistent volume that only one pod may use
}

// New returns a manager. It touches nothing on the disk.
func New(opts Options) *Manager {
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Node == nil {
		opts.Node = func() *corev1.Node { return &corev1.Node{} }
	}
	return &Manager{opts: opts, pods: map[types.UID]map[string]ready{}, tokens: tokens{source: opts.Source, clock: opts.Clock, log: opts.Log}}
}

// Failure is a volume that could not be made ready. Its text is what users are told in an event with the reason FailedMount.
type Failure struct {
	Volume string
	Stage  string // what failed, as upstream calls it
	Err    error
}

func (f *Failure) Error() string {
	if f.Stage == "" {
		return f.Err.Error()
	}
	return fmt.Sprintf("%s for volume %q : %v", f.Stage, f.Volume, f.Err)
}

func (f *Failure) Unwrap() error { return f.Err }

// Failures returns the volumes that an error of SetUp is about, one event each.
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

// SetUp makes every volume ready that a container of the pod mounts, and brings those that are ready up to date. One that fails does not
// keep others from being made; the error joins a Failure for each.
func (m *Manager) SetUp(ctx context.Context, pod *corev1.Pod) error {
	if err := checkUID(pod.UID); err != nil {
		return err
	}
	used := usedVolumes(pod)
	made, failed := map[string]ready{}, []error(nil)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !used[v.Name] {
			continue
		}
		r, err := m.setUp(ctx, pod, v)
		if err != nil {
			var f *Failure
			if !errors.As(err, &f) {
				err = &Failure{Volume: v.Name, Stage: "MountVolume.SetUp failed", Err: err}
			}
			failed = append(failed, err)
			continue
		}
		made[v.Name] = r
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.pods[pod.UID] {
		if _, again := made[name]; !again && used[name] {
			made[name] = r // it was ready before; containers that run use it
		}
	}
	m.pods[pod.UID] = made
	return errors.Join(failed...)
}

// usedVolumes returns those that some container mounts; others are not made.
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

func (m *Manager) setUp(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (ready, error) {
	switch {
	case v.EmptyDir != nil:
		dir := m.dir(pod.UID, "empty-dir", v.Name)
		return ready{name: v.Name, path: dir, managed: true, counted: true}, m.emptyDir(dir, pod, v.EmptyDir)
	case v.HostPath != nil:
		return ready{name: v.Name, path: v.HostPath.Path}, checkHostPath(v.HostPath)
	case v.ConfigMap != nil, v.Secret != nil, v.Projected != nil, v.DownwardAPI != nil:
		return m.content(ctx, pod, v)
	case v.Image != nil:
		return ready{name: v.Name, image: v.Image.Reference, readOnly: true}, nil
	case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
		return m.claim(ctx, pod, v)
	}
	return ready{}, unsupported(v)
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

// Path returns the directory of a pod's volume on the node. It is known once SetUp has made it.
func (m *Manager) Path(pod *corev1.Pod, volume string) (string, error) {
	r, ok := m.ready(pod.UID, volume)
	if !ok || r.path == "" {
		return "", fmt.Errorf("volume %q is not ready", volume)
	}
	return r.path, nil
}

func (m *Manager) ready(uid types.UID, volume string) (ready, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.pods[uid][volume]
	return r, ok
}

// TearDown unmounts everything of a pod and removes its volumes. Its containers must have ended. Nothing of what a volume only shows, the
// files of a persistent volume or a host path, is touched: as long as anything is mounted below the pod's directory no file is removed. What
// others keep in that directory stays; the directory itself goes if nothing is left in it.
func (m *Manager) TearDown(ctx context.Context, uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	dir := m.PodDir(uid)
	if err := unmountBelow(ctx, dir); err != nil {
		return fmt.Errorf("volumes of pod %s: %w", uid, err)
	}
	for _, own := range ownDirs {
		if err := os.RemoveAll(filepath.Join(dir, own)); err != nil {
			return fmt.Errorf("volumes of pod %s: %w", uid, err)
		}
	}
	_ = os.Remove(dir) // not empty, or gone
	m.tokens.forget(uid)
	m.mu.Lock()
	delete(m.pods, uid)
	m.mu.Unlock()
	return nil
}

// ownDirs are the parts of a pod's directory that are this package's.
var ownDirs = []string{"volumes", "volume-subpaths"}

// Left lists the pods that have volumes on the disk.
func (m *Manager) Left() ([]types.UID, error) {
	entries, err := os.ReadDir(m.opts.Root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for volumes of pods: %w", err)
	}
	var uids []types.UID
	for _, e := range entries {
		for _, own := range ownDirs {
			if _, err := os.Lstat(filepath.Join(m.opts.Root, e.Name(), own)); err == nil {
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

// containers goes over all containers of a pod: init, plain and ephemeral.
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

// noBacksteps refuses a path that leaves where it starts.
func noBacksteps(path string) error {
	if slices.Contains(strings.Split(path, "/"), "..") {
		return errors.New("must not contain '..'")
	}
	return nil
}
