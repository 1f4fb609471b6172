package node

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
	"skiff/test/seed"
)

var killRounds = flag.Int("kill-rounds", 2, "how many rounds skiff, containerd, shims and pauses are killed in")

// TestKillRounds kills skiff, containerd, shims and pauses while pods start, run and stop. Containers that run stay up whatever happens to skiff
// and containerd; a pod that loses its shim or its pause is started anew, once, as Kubernetes does; all that was asked for is there in the end,
// and nothing else is on the machine.
func TestKillRounds(t *testing.T) {
	s := seed.New(t)
	k := newKillTest(t, rand.New(rand.NewPCG(s, s)))
	for range *killRounds {
		k.round()
	}
	k.end()
}

// Victims.
const (
	victimSkiff      = "skiff"
	victimContainerd = "containerd"
	victimShim       = "shim"
	victimPause      = "pause"

	shimProgram = "containerd-shim-runc-v2"
)

type killTest struct {
	*testNamespace
	random *rand.Rand
	number int
	began  time.Time

	steady   map[string]*corev1.Pod // pods that nobody is to notice anything of
	pids     []string               // of their processes
	others   map[string]*subject    // pods that come and go
	leaving  []string               // the names of those that have been deleted in this round
	baseline inventory
	layered  int

	hits    []hit // of this round
	kills   map[string]int
	settled []time.Duration
	made    int

	asked, unanswered atomic.Int64
}

// subject is a pod that may lose its shim or pause, as it was before the round.
type subject struct {
	kind string
	was  *corev1.Pod // nil in the round in which it is made
	hurt bool        // it has lost containers
}

// hit is one kill of a process.
type hit struct {
	victim       string
	pod, sandbox string // whose shim or pause it was
}

func (h hit) String() string { return strings.TrimSpace(h.victim + " " + h.pod) }

func newKillTest(t *testing.T, random *rand.Rand) *killTest {
	t.Helper()
	c := newCluster(t)
	k := &killTest{testNamespace: c.space(t), random: random, began: time.Now(), steady: map[string]*corev1.Pod{}, others: map[string]*subject{}, kills: map[string]int{}}
	for name, p := range map[string]*corev1.Pod{"steady-web": k.pod("web"), "steady-store": k.pod("volumes"), "steady-sidecar": k.pod("sidecar"), "steady-host": k.pod("plain")} {
		p.Name = name
		p.Spec.HostNetwork = name == "steady-host"
		k.create(p)
	}
	for _, name := range []string{"steady-web", "steady-store", "steady-sidecar", "steady-host"} {
		k.steady[name] = k.running(name)
	}
	k.kill(victimContainerd) // as it was after the rounds
	k.quiet(k.missing)
	k.baseline, k.layered, k.pids, k.hits = k.inventory(k), k.layers(k), k.steadyProcesses(), nil
	clear(k.kills)
	k.Logf("at first: %s, layers %d", k.baseline.counts(), k.layered)
	k.ask()
	return k
}

// ask sends requests to a steady pod all the time, to its IP and to its host port.
func (k *killTest) ask() {
	p := k.steady["steady-web"]
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	end := make(chan struct{})
	var done sync.WaitGroup
	for _, url := range []string{"http://" + p.Status.PodIP + ":8080/hostname", fmt.Sprintf("http://%s:%d/hostname", machineIP, p.Spec.Containers[0].Ports[0].HostPort)} {
		done.Go(func() {
			for {
				select {
				case <-end:
					return
				case <-time.After(20 * time.Millisecond):
				}
				k.asked.Add(1)
				resp, err := client.Get(url)
				if err != nil {
					k.unanswered.Add(1)
					k.Errorf("round %d: a pod that nobody is to disturb does not answer: %v", k.number, err)
					return
				}
				closeAll(resp.Body)
			}
		})
	}
	k.Cleanup(func() { close(end); done.Wait() })
}

// podKinds are the kinds of pods.
var podKinds = []string{"plain", "web", "volumes", "sidecar", "never", "work"}

// pod returns a new pod of a kind. Each has other things on the node.
func (k *killTest) pod(kind string) *corev1.Pod {
	k.made++
	p := newPod(fmt.Sprintf("%s-%d", kind, k.made), sh("main", forever))
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	switch kind {
	case "web":
		p.Spec.Containers = []corev1.Container{testserver("main"), sh("side", forever)}
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: int32(31000 + k.made)}}
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: handler("http", 8080), PeriodSeconds: 1}
		p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: handler("http", 8080), PeriodSeconds: 1, FailureThreshold: 10}
	case "volumes":
		p.Spec.Volumes = []corev1.Volume{
			{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "memory", MountPath: "/memory"}, {Name: "scratch", MountPath: "/scratch", SubPath: "part"}}
	case "sidecar":
		first, side := sh("first", "true"), sh("side", forever)
		side.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		p.Spec.InitContainers = []corev1.Container{first, side}
	case "never":
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
	case "work":
		p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		p.Spec.Containers[0].Command = []string{"sh", "-c", "sleep 0.5"}
	}
	return p
}

// round makes some pods and deletes others while something is killed, and waits until everything is as it should be.
func (k *killTest) round() {
	k.Helper()
	k.number++
	k.hits, k.leaving = nil, nil
	steps := []func(){}
	for range 1 + k.random.IntN(3) {
		kind := podKinds[k.random.IntN(len(podKinds))]
		steps = append(steps, func() {
			p := k.create(k.pod(kind))
			k.others[p.Name] = &subject{kind: kind}
		})
	}
	old := slices.Sorted(maps.Keys(k.others))
	k.random.Shuffle(len(old), func(i, j int) { old[i], old[j] = old[j], old[i] })
	for _, name := range old[:min(len(old), k.random.IntN(4))] {
		steps = append(steps, func() {
			if err := k.api.CoreV1().Pods(k.name).Delete(k.Context(), name, metav1.DeleteOptions{}); err != nil {
				k.Fatalf("round %d: %v", k.number, err)
			}
			k.leaving = append(k.leaving, name)
		})
	}
	for range 1 + k.random.IntN(3) {
		victim := []string{victimSkiff, victimContainerd, victimShim, victimPause}[k.random.IntN(4)]
		steps = append(steps, func() { k.kill(victim) })
	}
	k.random.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	for _, step := range steps {
		step()
		if k.random.IntN(3) > 0 {
			time.Sleep(time.Duration(k.random.IntN(600)) * time.Millisecond)
		}
	}
	began := time.Now()
	k.quiet(k.missing)
	for _, name := range k.leaving {
		delete(k.others, name)
	}
	k.judge()
	k.settled = append(k.settled, time.Since(began))
	k.Logf("round %d: %v, quiet after %.1f s, %d pods", k.number, k.hits, time.Since(began).Seconds(), len(k.others)+len(k.steady))
	if k.Failed() {
		k.Fatalf("round %d of %d\n%s", k.number, *killRounds, k.log())
	}
}

// quiet waits until nothing is missing for a while.
func (k *killTest) quiet(missing func() string) {
	k.Helper()
	const long = 5 * time.Second
	told := false
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		what := missing()
		if what == "" {
			return
		}
		if !told && time.Since(began) > long {
			told = true
			k.Logf("round %d: after %v %v\n%s", k.number, long, k.hits, what)
		}
		if time.Since(began) > awaitTimeout {
			pods, _ := k.command("describe", "pods").CombinedOutput()
			all, _ := exec.Command("ps", "-eo", "pid,ppid,lstart,stat,args").CombinedOutput()
			k.Fatalf("round %d: after %v %v\n%s\n%s\n%s\n%s", k.number, awaitTimeout, k.hits, what, all, pods, k.log())
		}
	}
}

// kill kills. skiff is started again after a while; in that time something else may be killed, too.
func (k *killTest) kill(victim string) {
	k.Helper()
	switch victim {
	case victimSkiff:
		pid := k.pid(k)
		k.strike(hit{victim: victim}, pid)
		k.await("skiff to be dead", func() bool { return syscall.Kill(pid, 0) != nil })
		if k.random.IntN(3) == 0 {
			k.kill([]string{victimContainerd, victimShim, victimPause}[k.random.IntN(3)])
		}
		time.Sleep(time.Duration(k.random.IntN(300)) * time.Millisecond)
		k.up(k)
	case victimContainerd:
		for _, p := range k.find(func(p proc) bool {
			return p.program == filepath.Join(filepath.Dir(p.program), "containerd") && p.pod == ""
		}) {
			k.strike(hit{victim: victim}, p.pid)
		}
	case victimShim, victimPause:
		k.killOfPod(victim)
	}
}

func (k *killTest) find(is func(proc) bool) []proc {
	k.Helper()
	all, err := k.processes()
	if err != nil {
		k.Fatal(err)
	}
	return slices.DeleteFunc(all, func(p proc) bool { return !is(p) })
}

func (k *killTest) strike(h hit, pid int) {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return // it has just ended by itself
	}
	k.hits = append(k.hits, h)
	k.kills[h.victim]++
}

// killOfPod kills the shim or the pause of a pod that is not a steady one, and has not lost one before: who does is made to wait longer each time.
func (k *killTest) killOfPod(victim string) {
	k.Helper()
	spared := map[string]bool{}
	for _, p := range k.steady {
		spared[string(p.UID)] = true
	}
	settled := map[string]bool{}
	for _, o := range k.others {
		if o.was != nil {
			spared[string(o.was.UID)], settled[string(o.was.UID)] = o.hurt, true
		}
	}
	alive := map[string]bool{} // sandboxes
	for _, p := range k.find(func(p proc) bool { return filepath.Base(p.program) == "pause" }) {
		alive[p.task] = true
	}
	type target struct {
		hit
		pid int
	}
	var found []target
	for _, p := range k.find(func(p proc) bool {
		return victim == victimPause && p.pod != "" && filepath.Base(p.program) == "pause" || victim == victimShim && filepath.Base(p.program) == shimProgram
	}) {
		h := hit{victim, p.pod, p.task}
		if victim == victimShim {
			i := slices.Index(p.args, "-id")
			if i < 0 || slices.Contains(p.args, "delete") || slices.Contains(p.args, "start") {
				continue
			}
			h.sandbox = p.args[i+1]
			h.pod = k.podOfTask(h.sandbox)
		}
		if settled[h.pod] && !alive[h.sandbox] {
			continue // a sandbox that never came to be, or has ended, may have a shim until it is removed
		}
		if h.pod != "" && !spared[h.pod] { // else nobody can say whose it is, yet
			found = append(found, target{h, p.pid})
		}
	}
	if len(found) > 0 {
		one := found[k.random.IntN(len(found))]
		k.strike(one.hit, one.pid)
	}
}

// podOfTask returns the pod of a sandbox, as the runtime wrote it down for runc.
func (k *killTest) podOfTask(id string) string {
	data, err := os.ReadFile(filepath.Join(k.runDir(), "containerd", "io.containerd.runtime.v2.task", "k8s.io", id, "config.json"))
	var config struct{ Annotations map[string]string }
	if err != nil || json.Unmarshal(data, &config) != nil {
		return ""
	}
	return config.Annotations["io.kubernetes.cri.sandbox-uid"]
}

// missing returns what is not yet in its desired state.
func (k *killTest) missing() string {
	list, err := k.api.CoreV1().Pods(k.name).List(k.Context(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var out []string
	there := map[string]*corev1.Pod{}
	for i := range list.Items {
		there[list.Items[i].Name] = &list.Items[i]
	}
	for name := range k.steady {
		if p := there[name]; p == nil || condition(p, corev1.PodReady).Status != corev1.ConditionTrue {
			out = append(out, name+" is not ready")
		}
	}
	for name, o := range k.others {
		p := there[name]
		if slices.Contains(k.leaving, name) {
			if p != nil {
				out = append(out, name+" is still there")
			}
			continue
		}
		if p == nil {
			out = append(out, name+" is gone")
			continue
		}
		ready := condition(p, corev1.PodReady).Status == corev1.ConditionTrue
		switch o.kind {
		case "work":
			ready = p.Status.Phase == corev1.PodSucceeded
		case "never":
			ready = ready && (o.was == nil || !k.wasHit(p)) || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
		default:
			// One that was hit is ready until that is noticed.
			if o.was != nil && k.wasHit(p) {
				ready = ready && !slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.RestartCount <= container(o.was, c.Name).RestartCount })
			}
		}
		if !ready {
			out = append(out, fmt.Sprintf("pod %s is not as it should be: %s %+v", name, p.Status.Phase, p.Status.ContainerStatuses))
		}
	}
	if len(out) > 0 {
		return strings.Join(out, "\n")
	}
	return k.orphans(list.Items)
}

// wasHit reports whether a pod may have lost its shim or pause in this round.
func (k *killTest) wasHit(p *corev1.Pod) bool { return k.hitsOf(p) > 0 }

func (k *killTest) hitsOf(p *corev1.Pod) (n int) {
	for _, h := range k.hits {
		if h.pod == string(p.UID) {
			n++
		}
	}
	return n
}

// upsets returns how often skiff or containerd was killed in this round.
func (k *killTest) upsets() (n int) {
	for _, h := range k.hits {
		if h.victim == victimSkiff || h.victim == victimContainerd {
			n++
		}
	}
	return n
}

// orphans returns what is on the machine and belongs to no pod.
func (k *killTest) orphans(pods []corev1.Pod) string {
	runtime, err := cri.Connect("unix://" + filepath.Join(k.runDir(), "containerd.sock"))
	if err != nil {
		return err.Error()
	}
	defer closeAll(runtime)
	known := map[string]bool{}
	for i := range pods {
		known[string(pods[i].UID)] = true
	}
	sandboxes, err := runtime.ListPodSandboxes(k.Context(), nil)
	if err != nil {
		return err.Error()
	}
	containers, err := runtime.ListContainers(k.Context(), nil)
	if err != nil {
		return err.Error()
	}
	ready := map[string]bool{}
	for _, s := range sandboxes {
		known[s.Id] = known[s.Labels[cri.LabelPodUID]]
		ready[s.Id] = s.State == runtimeapi.PodSandboxState_SANDBOX_READY
		if ready[s.Id] && slices.ContainsFunc(k.hits, func(h hit) bool { return h.sandbox == s.Id }) {
			return "it has not been noticed that sandbox " + s.Id + " was killed"
		}
	}
	up := map[string]bool{}
	for _, c := range containers {
		known[c.Id] = known[c.Labels[cri.LabelPodUID]]
		up[c.Id] = c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && ready[c.PodSandboxId]
	}
	for i := range pods {
		for _, c := range pods[i].Status.ContainerStatuses {
			if c.State.Running != nil && !up[strings.TrimPrefix(c.ContainerID, "containerd://")] {
				return "it has not been noticed that container " + c.Name + " of " + pods[i].Name + " does not run"
			}
		}
	}
	now := k.inventory(k)
	if left := now.orphans(known); len(left) > 0 {
		return "belongs to nobody:\n" + strings.Join(left, "\n")
	}
	return countsRight(now, sandboxes)
}

// countsRight checks that each sandbox that is ready has what it needs on the machine once, and others have nothing of the network.
func countsRight(now inventory, sandboxes []*runtimeapi.PodSandbox) string {
	count := func(kind, with string) (n int) {
		for _, line := range now[kind] {
			if strings.Contains(line, with) {
				n++
			}
		}
		return n
	}
	connected := 0
	for _, s := range sandboxes {
		if s.State != runtimeapi.PodSandboxState_SANDBOX_READY {
			continue
		}
		if shims := count("processes", shimProgram+" -namespace k8s.io -id "+s.Id); shims != 1 {
			return fmt.Sprintf("sandbox %s of %s has %d shims", s.Id, s.Metadata.Name, shims)
		}
		if s.Metadata.Name != "steady-host" {
			connected++
		}
	}
	for kind, is := range map[string]int{"addresses in use": len(now["addresses"]), "network namespaces": count("mounts", "/netns/"), "links": count("interfaces", "veth"), "results of CNI": len(now["CNI results"])} {
		if is != connected {
			return fmt.Sprintf("%d sandboxes have a network, but there are %d %s: %v", connected, is, kind, now.counts())
		}
	}
	if n := count("processes", "containerd --config"); n != 1 {
		return fmt.Sprintf("%d containerds run", n)
	}
	return ""
}

func (k *killTest) steadyProcesses() (out []string) {
	k.Helper()
	for _, p := range k.find(func(p proc) bool { return p.pod != "" }) {
		for name, of := range k.steady {
			if string(of.UID) == p.pod {
				out = append(out, fmt.Sprintf("%d %s of %s", p.pid, p.args, name))
			}
		}
	}
	slices.Sort(out)
	return out
}

// judge checks the state of each pod.
func (k *killTest) judge() {
	k.Helper()
	if now := k.steadyProcesses(); !slices.Equal(now, k.pids) {
		k.Errorf("processes that nobody is to disturb were\n%s\nand are\n%s", strings.Join(k.pids, "\n"), strings.Join(now, "\n"))
	}
	for name, was := range k.steady {
		k.same(was, k.get(name))
	}
	for name, o := range k.others {
		now := k.get(name)
		hits, upsets := k.hitsOf(now), k.upsets()
		least, most := 0, hits+upsets
		if o.was == nil {
			most += hits // a container may be tried in a sandbox before it is noticed that that is dead
		}
		switch {
		case o.was != nil && hits == 0:
			k.same(o.was, now)
		case o.kind == "never":
			if now.Status.Phase != corev1.PodRunning && hits+upsets == 0 {
				k.Errorf("pod %s has ended, and nobody harmed it\n%s", name, k.describe(now))
			}
			if n := container(now, "main").RestartCount; o.was != nil && n != container(o.was, "main").RestartCount || int(n) > most {
				k.Errorf("pod %s, which is never to be restarted, was %d times\n%s", name, n, k.describe(now))
			}
		case o.was != nil:
			least = 1
			if upsets == 0 {
				most = hits
			}
			fallthrough
		default:
			for _, c := range now.Status.ContainerStatuses {
				n := int(c.RestartCount)
				if o.was != nil {
					n -= int(container(o.was, c.Name).RestartCount)
				}
				if n < least || n > most {
					k.Errorf("container %s of pod %s was restarted %d times by %v, want %d to %d\n%s", c.Name, name, n, k.hits, least, most, k.describe(now))
				}
			}
		}
		o.was, o.hurt = now, slices.ContainsFunc(now.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.RestartCount > 0 })
	}
}

// same checks that a pod was not restarted.
func (k *killTest) same(was, now *corev1.Pod) {
	k.Helper()
	if was.Status.PodIP != now.Status.PodIP || was.UID != now.UID || was.Status.Phase != now.Status.Phase {
		k.Errorf("pod %s was %s at %s and is %s at %s", was.Name, was.Status.Phase, was.Status.PodIP, now.Status.Phase, now.Status.PodIP)
	}
	for _, list := range [][]corev1.ContainerStatus{was.Status.InitContainerStatuses, was.Status.ContainerStatuses} {
		for _, c := range list {
			is := container(now, c.Name)
			if is.ContainerID != c.ContainerID || is.RestartCount != c.RestartCount || (is.State.Running == nil) != (c.State.Running == nil) ||
				is.State.Running != nil && !is.State.Running.StartedAt.Equal(&c.State.Running.StartedAt) {
				k.Errorf("container %s of pod %s was %+v and is %+v; hits %v", c.Name, was.Name, c, is, k.hits)
			}
		}
	}
}

// end deletes all pods of the test, and compares the inventory of the node with that before the test.
func (k *killTest) end() {
	k.Helper()
	last := k.create(k.pod("plain"))
	k.others[last.Name] = &subject{kind: "plain"}
	k.hits, k.leaving = nil, nil
	k.quiet(k.missing)
	k.kill(victimContainerd)
	for name := range k.others {
		if err := k.api.CoreV1().Pods(k.name).Delete(k.Context(), name, metav1.DeleteOptions{}); err != nil {
			k.Fatal(err)
		}
		k.leaving = append(k.leaving, name)
	}
	k.quiet(k.missing)
	for _, name := range k.leaving {
		delete(k.others, name)
	}
	k.tidyLayers()
	var now inventory
	k.quiet(func() string {
		now = k.inventory(k)
		out := append(now.more(k.baseline), k.baseline.more(now)...)
		if l := k.layers(k); l != k.layered {
			out = append(out, fmt.Sprintf("%d layers were there, %d are", k.layered, l))
		}
		if len(out) > 0 {
			return "different from what was at first:\n" + strings.Join(out, "\n")
		}
		return ""
	})
	k.judge()
	slices.Sort(k.settled)
	k.Logf("%d rounds in %.0f s: kills %v; quiet after %.1f s at the median, %.1f s at most; %d questions, %d without an answer", k.number, time.Since(k.began).Seconds(), k.kills,
		k.settled[len(k.settled)/2].Seconds(), k.settled[len(k.settled)-1].Seconds(), k.asked.Load(), k.unanswered.Load())
	k.Logf("in the end: %s, layers %d", now.counts(), k.layers(k))
}

// tidyLayers has containerd look for layers that nobody knows of, which one leaves that is killed while it makes or removes one. It does so only after it
// has removed one that it knew: a pod comes and goes.
func (k *killTest) tidyLayers() {
	k.Helper()
	for range 3 {
		for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			if k.layers(k) == k.layered {
				return
			}
		}
		pod := k.create(k.pod("plain"))
		k.others[pod.Name] = &subject{kind: "plain"}
		k.quiet(k.missing)
		if err := k.api.CoreV1().Pods(k.name).Delete(k.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
			k.Fatal(err)
		}
		k.leaving = append(k.leaving, pod.Name)
		k.quiet(k.missing)
		delete(k.others, pod.Name)
	}
}
