package node

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/test/seed"
)

var volumeRounds = flag.Int("volume-rounds", 3, "how many times skiff is killed while local volumes are created, mounted, expanded and deleted")

// TestLocalVolumeKills kills skiff while claims of the default StorageClass get volumes, grow and are deleted. A pod appends a line to its volume in each round, and
// no line is ever lost; each claim has one volume; in the end nothing is left of those that were deleted.
func TestLocalVolumeKills(t *testing.T) {
	s := seed.New(t)
	random := rand.New(rand.NewPCG(s, s))
	c := newCluster(t)
	v := &volumeKills{c.space(t), random}
	v.claim("log", "32Mi", "")
	for round := range *volumeRounds {
		v.round(round + 1)
	}
	v.end(*volumeRounds)
}

type volumeKills struct {
	*testNamespace
	random *rand.Rand
}

// soon waits for a random part of the time that what is going on takes.
func (v *volumeKills) soon() { time.Sleep(time.Duration(v.random.IntN(700)) * time.Millisecond) }

// killed runs what takes a while, and kills skiff meanwhile.
func (v *volumeKills) killed(what func()) {
	v.Helper()
	what()
	pid := v.pid(v)
	v.soon()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		v.Fatal(err)
	}
	v.await("skiff to be dead", func() bool { return syscall.Kill(pid, 0) != nil })
	v.up(v)
}

// again creates a pod whose container is started again if it could not be: skiff was killed while it was.
func (v *volumeKills) again(p *corev1.Pod) {
	v.Helper()
	p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	v.create(p)
}

func (v *volumeKills) round(n int) {
	v.Helper()
	name := fmt.Sprint("round-", n)
	v.killed(func() {
		v.again(v.claimed(name, "log", fmt.Sprintf("grep -qsx %d /data/log || echo %d >> /data/log; sync; cat /data/log", n, n)))
		v.claim(name, "20Mi", "")
		v.again(v.claimed("new-"+name, name, "echo new > /data/file; sync"))
	})
	for _, pod := range []string{name, "new-" + name} {
		if p := v.awaitEnd(pod); p.Status.Phase != corev1.PodSucceeded {
			v.Fatalf("pod %s failed\n%s", pod, v.describe(p))
		}
	}
	var want strings.Builder
	for i := range n {
		fmt.Fprintln(&want, i+1)
	}
	if got := v.logs(name, &corev1.PodLogOptions{}); got != want.String() {
		v.Errorf("in round %d the volume has %q, want %q", n, got, want.String())
	}
	pv, image := v.volumeOf(name)
	v.killed(func() {
		size := fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":"%dMi"}}}}`, 32+16*n)
		if _, err := v.api.CoreV1().PersistentVolumeClaims(v.name).Patch(v.Context(), "log", types.MergePatchType, []byte(size), metav1.PatchOptions{}); err != nil {
			v.Fatal(err)
		}
		for _, pod := range []string{name, "new-" + name} {
			if err := v.api.CoreV1().Pods(v.name).Delete(v.Context(), pod, metav1.DeleteOptions{}); err != nil {
				v.Fatal(err)
			}
		}
		v.deleteClaim(name)
	})
	v.gone(pv, image)
	v.await("the volume to be expanded", func() bool {
		pv, image := v.volumeOf("log")
		capacity := pv.Spec.Capacity[corev1.ResourceStorage]
		info, err := os.Stat(image)
		return err == nil && info.Size() == capacity.Value() && capacity.Value() == int64(32+16*n)<<20
	})
}

// end deletes what is left, and checks that nothing remains.
func (v *volumeKills) end(rounds int) {
	v.Helper()
	size := v.each(v.claimed("last", "log", "echo grown=$(df -m /data | tail -1 | awk '{print $2}'); echo lines=$(wc -l < /data/log)"))["main"]
	v.expect(size, map[string]string{"lines": fmt.Sprint(rounds)})
	if grown := v.number(size["grown"]); grown < 20+14*rounds {
		v.Errorf("the file system has %d MB after %d expansions by 16", grown, rounds)
	}
	v.delete("last")
	pv, image := v.volumeOf("log")
	v.deleteClaim("log")
	v.gone(pv, image)
	if left, err := os.ReadDir(filepath.Dir(image)); err != nil || len(left) > 0 {
		v.Errorf("left: %v %v", left, err)
	}
	v.await("all to be detached", func() bool { return len(loopDevices(v.dir)) == 0 })
}
