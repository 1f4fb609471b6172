//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
)

// objects is a Source of what a test puts into it.
type objects struct {
	mu         sync.Mutex
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
	bundles    []*certificatesv1.ClusterTrustBundle
	claims     map[string]*corev1.PersistentVolumeClaim
	volumes    map[string]*corev1.PersistentVolume
	tokens     int
	life       time.Duration
	down       error
	clock      *clocktesting.FakePassiveClock
}

func get[T any](o *objects, m map[string]T, kind, name string) (T, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	object, ok := m[name]
	if !ok {
		return object, apierrors.NewNotFound(schema.GroupResource{Resource: kind}, name)
	}
	return object, o.down
}

func (o *objects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	return get(o, o.configMaps, "configmaps", name)
}

func (o *objects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return get(o, o.secrets, "secrets", name)
}

func (o *objects) Claim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	return get(o, o.claims, "persistentvolumeclaims", name)
}

func (o *objects) PersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return get(o, o.volumes, "persistentvolumes", name)
}

func (o *objects) TrustBundle(_ context.Context, name string) (*certificatesv1.ClusterTrustBundle, error) {
	i := slices.IndexFunc(o.bundles, func(b *certificatesv1.ClusterTrustBundle) bool { return b.Name == name })
	if i < 0 {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "clustertrustbundles"}, name)
	}
	return o.bundles[i], nil
}

func (o *objects) TrustBundles(context.Context) ([]*certificatesv1.ClusterTrustBundle, error) {
	return o.bundles, nil
}

func (o *objects) Token(_ context.Context, namespace, account string, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down != nil {
		return nil, o.down
	}
	o.tokens++
	r = r.DeepCopy()
	seconds := int64(o.life.Seconds())
	r.Spec.ExpirationSeconds = &seconds
	r.Status.Token = fmt.Sprintf("token %d of %s/%s for %s %v", o.tokens, namespace, account, r.Spec.BoundObjectRef.Name, r.Spec.Audiences)
	r.Status.ExpirationTimestamp = metav1.NewTime(o.clock.Now().Add(o.life))
	return r, nil
}

func (o *objects) Certificate(_ context.Context, pod *corev1.Pod, volume string, source int, spec *corev1.PodCertificateProjection) (key, chain []byte, waits bool, err error) {
	switch spec.SignerName {
	case "example.com/slow":
		return nil, nil, true, errors.New("not yet")
	case "example.com/strict":
		return nil, nil, false, errors.New("denied")
	}
	what := fmt.Sprintf("of %s, volume %s, source %d\n", pod.Name, volume, source)
	return []byte("key " + what), []byte("chain " + what), false, nil
}

func (o *objects) set(name string, data map[string]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.configMaps[name] = &corev1.ConfigMap{Data: data}
}

// fixture is a manager whose directory is empty, and has nothing mounted when the test ends.
type fixture struct {
	*Manager
	t      *testing.T
	dir    string
	source *objects
	clock  *clocktesting.FakePassiveClock
	node   *corev1.Node
	rro    bool
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	f := &fixture{t: t, dir: t.TempDir(), clock: clock, source: &objects{configMaps: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{},
		claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{}, life: time.Hour, clock: clock},
		node: &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"memory": resource.MustParse("1Gi"), "cpu": resource.MustParse("2")}}}}
	f.Manager = f.restarted()
	t.Cleanup(func() {
		left, err := f.Left()
		if err != nil {
			t.Error(err)
		}
		for _, uid := range left {
			if err := f.TearDown(context.Background(), uid); err != nil {
				t.Error(err)
			}
		}
		if mounts, err := mountsBelow(f.dir); err != nil || len(mounts) > 0 {
			t.Errorf("still mounted: %v %v", mounts, err)
		}
		if left, err := os.ReadDir(f.opts.Root); !os.IsNotExist(err) && len(left) > 0 {
			t.Errorf("left on disk: %v %v", left, err)
		}
	})
	return f
}

// restarted returns a manager of the same directory that remembers nothing.
func (f *fixture) restarted() *Manager {
	return New(Options{Root: filepath.Join(f.dir, "pods"), Source: f.source, Clock: f.clock, Node: func() *corev1.Node { return f.node },
		RecursiveReadOnly: func(*corev1.Pod) bool { return f.rro }})
}

func (f *fixture) setUp(pod *corev1.Pod) {
	f.t.Helper()
	if err := f.SetUp(context.Background(), pod); err != nil {
		f.t.Fatal(err)
	}
}

// path returns a file of a pod's volume.
func (f *fixture) path(pod *corev1.Pod, volume string, names ...string) string {
	f.t.Helper()
	dir, err := f.Path(pod, volume)
	if err != nil {
		f.t.Fatal(err)
	}
	return filepath.Join(append([]string{dir}, names...)...)
}

// shows compares the files of a volume, as containers see them, with what they should be.
func (f *fixture) shows(pod *corev1.Pod, volume string, want map[string]string) {
	f.t.Helper()
	root, got := f.path(pod, volume), map[string]string{}
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			f.t.Fatal(err)
		}
		for _, e := range entries {
			name := filepath.Join(dir, e.Name())
			info, err := os.Stat(filepath.Join(root, name))
			switch {
			case strings.HasPrefix(e.Name(), ".."):
			case err != nil:
				f.t.Fatal(err)
			case info.IsDir():
				walk(name)
			default:
				content, err := os.ReadFile(filepath.Join(root, name))
				if err != nil {
					f.t.Fatal(err)
				}
				got[name] = string(content)
			}
		}
	}
	walk("")
	if fmt.Sprint(got) != fmt.Sprint(want) {
		f.t.Errorf("volume %s shows %v, want %v", volume, got, want)
	}
}

// owner returns the mode, user and group of a file.
func owner(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	s := info.Sys().(*statT)
	return fmt.Sprintf("%o %d:%d", s.Mode&0o7777, s.Uid, s.Gid)
}

// newPod returns a pod with one container that mounts each volume at /name.
func newPod(uid string, volumes ...corev1.Volume) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p-" + uid, Namespace: "n", UID: uidOf(uid)},
		Spec: corev1.PodSpec{ServiceAccountName: "robot", Volumes: volumes, Containers: []corev1.Container{{Name: "c"}}}}
	for _, v := range volumes {
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	return pod
}

func withGroup(pod *corev1.Pod, group int64) *corev1.Pod {
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
	return pod
}

func emptyDir(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func configMap(name, of string, items ...corev1.KeyToPath) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: of}, Items: items, DefaultMode: ptr(int32(0o644))}}}
}

func ptr[T any](v T) *T { return &v }

// failure checks what users are told.
func failure(t *testing.T, err error, want ...string) {
	t.Helper()
	var got []string
	for _, f := range Failures(err) {
		got = append(got, f.Error())
	}
	if !slices.Equal(got, want) {
		t.Errorf("users are told %q, want %q", got, want)
	}
	if len(want) > 0 && err == nil {
		t.Error(errors.New("no error"))
	}
}
