package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// survivors are pods that run while skiff does not.
type survivors struct {
	s    *testNamespace
	dir  string // shared with "ends", which ends when there is a file called go in it
	pods map[string]*corev1.Pod
}

func (s *testNamespace) survivors() *survivors {
	v := &survivors{s: s, pods: map[string]*corev1.Pod{}}
	always := func(p *corev1.Pod) *corev1.Pod { p.Spec.RestartPolicy = corev1.RestartPolicyAlways; return p }
	ends := always(newPod("ends", sh("main", "if [ -e /shared/go ]; then "+forever+"; fi; until [ -e /shared/go ]; do sleep 0.1; done; exit 5")))
	v.dir = s.mounted(ends)
	serves := always(newPod("serves", testserver("main"), sh("side", forever)))
	serves.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: handler("http", 8080), PeriodSeconds: 1}
	for _, p := range []*corev1.Pod{ends, serves, newPod("once", sh("main", forever))} {
		s.create(p)
	}
	for _, name := range []string{"ends", "serves", "once"} {
		v.pods[name] = s.running(name)
	}
	return v
}

// alone checks that containers keep running without skiff, and has one exit meanwhile.
func (v *survivors) alone() {
	v.s.Helper()
	if got := get("http://" + v.pods["serves"].Status.PodIP + ":8080/hostname"); got != "serves\n" {
		v.s.Errorf("without skiff the pod answers %q", got)
	}
	if err := os.WriteFile(filepath.Join(v.dir, "go"), nil, 0o644); err != nil {
		v.s.Fatal(err)
	}
	time.Sleep(time.Second) // the container ends
}

// adopted checks that a new skiff process takes over the running pods.
func (v *survivors) adopted() {
	v.s.Helper()
	for _, name := range []string{"serves", "once"} {
		p := v.s.running(name)
		for _, c := range v.pods[name].Spec.Containers {
			was, is := container(v.pods[name], c.Name), container(p, c.Name)
			if is.ContainerID != was.ContainerID || is.RestartCount != 0 || is.State.Running == nil || !is.State.Running.StartedAt.Equal(&was.State.Running.StartedAt) {
				v.s.Errorf("container %s of %s was %+v and is %+v", c.Name, name, was, is)
			}
		}
		if p.Status.PodIP != v.pods[name].Status.PodIP {
			v.s.Errorf("the address of %s was %s and is %s", name, v.pods[name].Status.PodIP, p.Status.PodIP)
		}
	}
	p := v.s.wait("ends", "to be started again", func(p *corev1.Pod) bool {
		c := container(p, "main")
		return c.RestartCount == 1 && c.State.Running != nil
	})
	if last := container(p, "main").LastTerminationState.Terminated; last == nil || last.ExitCode != 5 {
		v.s.Errorf("the container that ended meanwhile: %+v", last)
	}
	if got := v.s.exec("once", "hostname"); got != "once\n" {
		v.s.Errorf("exec says %q", got)
	}
	if got := v.s.output(newPod("new", sh("main", "echo new"))); got != "new\n" {
		v.s.Errorf("a new pod says %q", got)
	}
	for _, name := range []string{"serves", "once"} {
		if e := v.s.events(name); slices.ContainsFunc(e, func(e string) bool { return strings.HasPrefix(e, "Killing") || strings.HasPrefix(e, "SandboxChanged") }) {
			v.s.Errorf("about %s was told:\n%s", name, strings.Join(e, "\n"))
		}
	}
	// It is watched as before: it can be deleted, and what ends is noticed.
	v.s.delete("once")
	v.s.post(v.pods["serves"], 8080, "/fail")
	v.s.wait("serves", "to be restarted for its probe", func(p *corev1.Pod) bool { return container(p, "main").RestartCount == 1 })
}

// When skiff is killed, containers keep running, and the next skiff takes them over.
func killed(s *testNamespace) {
	v := s.survivors()
	pid := s.pid(s)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.Fatal(err)
	}
	s.await("skiff to be dead", func() bool { return syscall.Kill(pid, 0) != nil })
	v.alone()
	s.up(s)
	if now := s.pid(s); now == pid {
		s.Error("skiff was not killed")
	}
	v.adopted()
}

// skiff stop leaves containers running, and skiff up takes them over.
func stopped(s *testNamespace) {
	v := s.survivors()
	pid := s.pid(s)
	s.skiff(s, "stop", "--data-dir", s.dir, "--name", "e2e")
	s.await("skiff to have ended", func() bool { return syscall.Kill(pid, 0) != nil })
	v.alone()
	s.up(s)
	v.adopted()
}

// What a cluster has on a machine goes with it: processes, mounts, namespaces, interfaces, rules and cgroups at once, data when it is purged.
func down(c *cluster, t *testing.T) {
	s := c.space(t)
	p := newPod("full", testserver("main"), sh("side", forever))
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 31234}}
	p.Spec.Volumes = []corev1.Volume{{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: new(resource.MustParse("1Mi"))}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "memory", MountPath: "/memory", SubPath: "part"}}
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	s.create(p)
	s.running("full")
	began := time.Now()
	s.skiff(s, "down", "--data-dir", s.dir, "--name", "e2e")
	t.Logf("skiff down took %.2f s", time.Since(began).Seconds())
	nothingLeft(t, "skiff down", s.dir, s.before)
	if _, err := os.Stat(s.dir); err != nil {
		s.Errorf("the data: %v", err)
	}
	// The data was kept: the cluster is as it was, and its pods run again.
	s.up(s)
	q := s.wait("full", "to run again", func(p *corev1.Pod) bool {
		return container(p, "main").RestartCount > 0 && condition(p, corev1.PodReady).Status == corev1.ConditionTrue
	})
	s.await("the pod to answer", func() bool { return get(fmt.Sprintf("http://%s:8080/hostname", q.Status.PodIP)) == "full\n" })
	s.isDown = true
	for _, how := range []string{"skiff down --purge", "skiff down --purge once more"} {
		s.skiff(s, "down", "--purge", "--data-dir", s.dir, "--name", "e2e")
		nothingLeft(t, how, s.dir, s.before)
		if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
			s.Errorf("after %s the data directory is there: %v", how, err)
		}
	}
}
