package local

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/test/seed"
)

var volumeRounds = flag.Int("volume-rounds", 2, "in how many rounds something is killed while StatefulSets get, expand, move and give up volumes")

// ownLoops are the control loops that the controller manager runs when each part is a process of its own: those that make, bind, attach and delete what is tested.
// The server keeps the others, such as those that sign certificates.
var ownLoops = []string{"disruption-controller", "garbage-collector-controller", "local-volume-provisioner-controller", "persistentvolume-attach-detach-controller",
	"persistentvolume-binder-controller", "persistentvolume-expander-controller", "persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller",
	"statefulset-controller"}

// TestVolumeFaults kills the server, the agent, control loops, the scheduler and the processes of a CSI driver while two StatefulSets, one on volumes of the default StorageClass and one on
// volumes of that driver, are scaled, expanded, rolled and drained. Each pod writes a sequence to its volume. No claim or volume is ever bound twice, no volume is
// attached to two nodes or detached while it is mounted, nothing that a pod wrote is lost, and nothing is left in the end.
func TestVolumeFaults(t *testing.T) {
	random := seed.New(t)
	t.Run("one process", func(t *testing.T) { volumeFaultRounds(t, rand.New(rand.NewPCG(random, 2)), false) })
	t.Run("a process for each part", func(t *testing.T) { volumeFaultRounds(t, rand.New(rand.NewPCG(random, 3)), true) })
}

// volumeFaultRounds is the test in a cluster whose server has its loops and scheduler in its own process, or apart.
func volumeFaultRounds(t *testing.T, random *rand.Rand, apart bool) {
	v := newVolumeFaults(t, random, apart)
	defer func() {
		if t.Failed() {
			v.explain()
		}
	}()
	v.settle()
	for i := range *volumeRounds {
		began := time.Now()
		what := v.round()
		v.settle()
		t.Logf("round %d of %d: %s, %.1f s", i+1, *volumeRounds, what, time.Since(began).Seconds())
		if t.Failed() {
			t.FailNow()
		}
	}
	v.end()
}

type volumeFaults struct {
	*cluster
	t         *testing.T
	random    *rand.Rand
	nodes     []string
	dir       string // that nodes share
	sets      []*faultySet
	victims   []victim
	checker   *volumeChecker
	revisions int
}

// victim is a process that is killed and started again.
type victim struct {
	name        string
	kill, start func()
}

func newVolumeFaults(t *testing.T, random *rand.Rand, apart bool) *volumeFaults {
	v := &volumeFaults{cluster: newCluster(t, "tide"), t: t, random: random, nodes: []string{"tide-1", "tide-2"}, dir: t.TempDir()}
	for _, name := range []string{"csi", "reports"} {
		if err := os.Mkdir(filepath.Join(v.dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	buildDriver(t, filepath.Join(v.dir, "driver"))
	v.load(t, "busybox")
	flags := []string{"--nodes", "2", "--name", v.name}
	if apart {
		flags = append(flags, "--disable", "scheduler", "--controllers", "*,-"+strings.Join(ownLoops, ",-"))
	}
	v.up(t, flags...)
	if apart {
		v.victims = append(v.victims, victimOf(t, v.newPart(t, v.dir, "scheduler")),
			victimOf(t, v.newPart(t, v.dir, "controller-manager", "--controllers", strings.Join(ownLoops, ","))))
	}
	for _, node := range v.nodes {
		v.share(t, node, v.dir)
		v.victims = append(v.victims, v.skiffOf(node))
	}
	for _, node := range append([]string{""}, v.nodes...) {
		v.victims = append(v.victims, victimOf(t, v.newDriver(t, node, v.dir)))
	}
	v.checker = newVolumeChecker(v.api, v.states(t))
	s := &sidecars{api: v.api, controller: csi.NewControllerClient(dialController(t, v.dir)), nodes: v.states(t), violation: v.checker.violation}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { v.checker.run(ctx, t) })
	running.Go(func() { s.run(ctx, t) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	v.classes()
	v.sets = []*faultySet{v.newSet("disk", "local", 2), v.newSet("net", "shared", 2)}
	return v
}

func victimOf(t *testing.T, p *process) victim {
	return victim{p.name, func() { p.kill(t) }, func() { p.start(t) }}
}

// skiffOf is the skiff process of a node: API server, loops, scheduler and kubelet on the first one, the agent's kubelet on others.
func (v *volumeFaults) skiffOf(node string) victim {
	return victim{"skiff of " + node, func() {
		pid := v.states(v.t)[node].PID
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		eventually(v.t, "skiff is dead", func() error {
			if syscall.Kill(pid, 0) == nil {
				return fmt.Errorf("process %d is there", pid)
			}
			return nil
		})
	}, v.upAgain}
}

// upAgain starts what does not run. The other node's skiff may be killed while `skiff up` runs, which then says so: it is called again.
func (v *volumeFaults) upAgain() {
	v.t.Helper()
	for range 2 {
		code, _, errs := v.try(v.t, "up")
		if code == 0 {
			return
		}
		v.t.Logf("skiff up, called again: %s", errs)
	}
	v.skiff(v.t, "up")
}

// round does something to the sets, kills one or two processes meanwhile, and says what it was.
func (v *volumeFaults) round() string {
	v.t.Helper()
	what, act := v.act()
	var killing sync.WaitGroup
	victims := v.random.Perm(len(v.victims))[:1+v.random.IntN(2)]
	for _, i := range victims {
		one := v.victims[i]
		wait, dead := v.moment([]int{200, 600, 3000}[v.random.IntN(3)]), v.moment(1000)
		what += fmt.Sprintf("; %s killed after %v for %v", one.name, wait, dead)
		killing.Go(func() {
			time.Sleep(wait)
			one.kill()
			time.Sleep(dead)
			one.start()
		})
	}
	act()
	killing.Wait()
	return what
}

// moment is a random time.
func (v *volumeFaults) moment(most int) time.Duration {
	return time.Duration(v.random.IntN(most)) * time.Millisecond
}

// act chooses what to do to the sets, which all the time also write.
func (v *volumeFaults) act() (string, func()) {
	s := v.sets[v.random.IntN(len(v.sets))]
	switch v.random.IntN(5) {
	case 0:
		return v.scale(s)
	case 1:
		ordinal, more := v.random.IntN(int(s.replicas)), 8+v.random.IntN(16)
		// Not every machine lets a kubelet in a namespace expand a file system that is mounted: local volumes grow for the next pod.
		running := s.class == "shared" && v.random.IntN(4) == 0
		return fmt.Sprintf("claim of %s-%d expanded by %d MiB, its pod runs on: %v", s.name, ordinal, more, running), func() {
			v.expand(s, ordinal, more)
			if !running {
				v.restartExpanded(s, ordinal)
			}
		}
	case 2:
		return "sets rolled", v.roll
	case 3:
		node, most := v.nodes[v.random.IntN(len(v.nodes))], 2*time.Second+v.moment(6000)
		return fmt.Sprintf("%s drained for %v", node, most), func() { v.drain(node, most) }
	default:
		ordinal := v.random.IntN(int(s.replicas))
		return fmt.Sprintf("claim of %s-%d deleted, and its pod", s.name, ordinal), func() { v.replace(s, ordinal) }
	}
}

// scale scales a set up, or down with its claims kept or deleted.
func (v *volumeFaults) scale(s *faultySet) (string, func()) {
	const most = 3
	before, policy := s.replicas, "Retain"
	for s.replicas == before {
		s.replicas = 1 + v.random.Int32N(most)
	}
	if v.random.IntN(2) == 0 {
		policy = "Delete"
	}
	return fmt.Sprintf("%s scaled from %d to %d, claims: %s", s.name, before, s.replicas, policy), func() {
		v.patchSet(s, fmt.Sprintf(`{"spec":{"replicas":%d,"persistentVolumeClaimRetentionPolicy":{"whenScaled":"%s","whenDeleted":"Retain"}}}`, s.replicas, policy))
	}
}

// insist tries a request again until it succeeds: the server is killed now and then.
func (v *volumeFaults) insist(what string, do func(context.Context) error) {
	v.t.Helper()
	eventually(v.t, what, func() error {
		ctx, cancel := briefly(v.t.Context())
		defer cancel()
		return do(ctx)
	})
}

func (v *volumeFaults) patchSet(s *faultySet, patch string) {
	v.t.Helper()
	v.insist("patch "+s.name, func(ctx context.Context) error {
		_, err := v.api.AppsV1().StatefulSets("default").Patch(ctx, s.name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

// roll changes the template of all sets.
func (v *volumeFaults) roll() {
	v.revisions++
	for _, s := range v.sets {
		v.patchSet(s, fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"revision":"%d"}}}}}`, v.revisions))
	}
}

// expand has a claim ask for more.
func (v *volumeFaults) expand(s *faultySet, ordinal, mebibytes int) {
	v.t.Helper()
	name := fmt.Sprintf("data-%s-%d", s.name, ordinal)
	var size int64
	v.insist("get claim "+name, func(ctx context.Context) error {
		claim, err := v.api.CoreV1().PersistentVolumeClaims("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			size = claim.Spec.Resources.Requests.Storage().Value()>>20 + int64(mebibytes)
		}
		return err
	})
	v.insist("expand claim "+name, func(ctx context.Context) error {
		_, err := v.api.CoreV1().PersistentVolumeClaims("default").Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":"%dMi"}}}}`, size), metav1.PatchOptions{})
		return err
	})
}

// restartExpanded deletes a pod whose claim is being expanded, when only the file system is left to be.
func (v *volumeFaults) restartExpanded(s *faultySet, ordinal int) {
	v.t.Helper()
	pod := fmt.Sprintf("%s-%d", s.name, ordinal)
	v.insist("claim data-"+pod+" waits for its file system", func(ctx context.Context) error {
		claim, err := v.api.CoreV1().PersistentVolumeClaims("default").Get(ctx, "data-"+pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		has, wanted := claim.Status.Capacity[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
		if state := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; has.Cmp(wanted) < 0 && state != corev1.PersistentVolumeClaimNodeResizePending && state != corev1.PersistentVolumeClaimNodeResizeInProgress {
			return fmt.Errorf("it is %q", state)
		}
		return nil
	})
	v.insist("delete pod "+pod, func(ctx context.Context) error {
		return gone(v.api.CoreV1().Pods("default").Delete(ctx, pod, metav1.DeleteOptions{}))
	})
}

// replace deletes a claim and the pod that uses it: the set makes both anew.
func (v *volumeFaults) replace(s *faultySet, ordinal int) {
	v.t.Helper()
	pod := fmt.Sprintf("%s-%d", s.name, ordinal)
	claim, err := v.api.CoreV1().PersistentVolumeClaims("default").Get(v.t.Context(), "data-"+pod, metav1.GetOptions{})
	if err != nil {
		v.insist("get claim data-"+pod, func(ctx context.Context) (err error) {
			claim, err = v.api.CoreV1().PersistentVolumeClaims("default").Get(ctx, "data-"+pod, metav1.GetOptions{})
			return err
		})
	}
	uid := metav1.NewUIDPreconditions(string(claim.UID))
	v.insist("delete claim data-"+pod, func(ctx context.Context) error {
		return gone(v.api.CoreV1().PersistentVolumeClaims("default").Delete(ctx, "data-"+pod, metav1.DeleteOptions{Preconditions: uid}))
	})
	v.insist("delete pod "+pod, func(ctx context.Context) error {
		return gone(v.api.CoreV1().Pods("default").Delete(ctx, pod, metav1.DeleteOptions{}))
	})
	v.insist("claim data-"+pod+" is another one", func(ctx context.Context) error {
		now, err := v.api.CoreV1().PersistentVolumeClaims("default").Get(ctx, "data-"+pod, metav1.GetOptions{})
		if err == nil && now.UID == claim.UID {
			// The set may have made a pod that uses the old claim, which is deleted only when no pod does.
			_ = v.api.CoreV1().Pods("default").Delete(ctx, pod, metav1.DeleteOptions{})
			time.Sleep(200 * time.Millisecond)
			err = fmt.Errorf("it is the old one")
		}
		return err
	})
}

// drain cordons a node and evicts the pods that the budgets let go, for a while.
func (v *volumeFaults) drain(node string, most time.Duration) {
	v.t.Helper()
	cordon := func(on bool) {
		v.insist(fmt.Sprintf("cordon %s: %v", node, on), func(ctx context.Context) error {
			_, err := v.api.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, on), metav1.PatchOptions{})
			return err
		})
	}
	cordon(true)
	defer cordon(false)
	for deadline := time.Now().Add(most); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithDeadline(v.t.Context(), deadline)
		pods, err := v.api.CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		if err == nil {
			for _, p := range pods.Items {
				if p.DeletionTimestamp == nil { // a budget may not allow it now
					_ = v.api.PolicyV1().Evictions("default").Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name}})
				}
			}
		}
		cancel()
	}
}

// explain logs what there is.
func (v *volumeFaults) explain() {
	v.t.Log(v.kubectl(v.t, "get", "nodes,pods,pvc,pv,volumeattachments", "-o", "wide"))
	v.t.Log(v.kubectl(v.t, "describe", "pods,pvc,statefulsets"))
	for _, pattern := range []string{"*.log", "reports/*"} {
		files, _ := filepath.Glob(filepath.Join(v.dir, pattern))
		for _, file := range files {
			data, _ := os.ReadFile(file)
			v.t.Logf("%s:\n%s", file, data[max(0, len(data)-4000):])
		}
	}
}
