package node

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"skiff/internal/timerslack"
)

// each runs a pod to completion and returns the output of each of its containers.
func (s *testNamespace) each(p *corev1.Pod) map[string]map[string]string {
	s.Helper()
	s.create(p)
	done := s.awaitEnd(p.Name)
	out := map[string]map[string]string{}
	for _, c := range p.Spec.Containers {
		out[c.Name] = facts(s.logs(p.Name, &corev1.PodLogOptions{Container: c.Name}))
	}
	if done.Status.Phase != corev1.PodSucceeded {
		s.Fatalf("pod %s failed\n%s", p.Name, s.describe(done))
	}
	return out
}

// secured returns a container with a security context.
func secured(name, script string, sc corev1.SecurityContext) corev1.Container {
	c := sh(name, script)
	c.SecurityContext = &sc
	return c
}

func users(s *testNamespace) {
	const who = "echo uid=$(id -u); echo gid=$(id -g); echo groups=$(id -G); touch /tmp/mine; echo owner=$(stat -c %u:%g /tmp/mine)"
	p := newPod("who", sh("pods", who), secured("own", who, corev1.SecurityContext{RunAsUser: new(int64(2000)), RunAsGroup: new(int64(3000))}),
		secured("nobody", who, corev1.SecurityContext{RunAsUser: new(int64(65534))}))
	p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1500)), SupplementalGroups: []int64{5000, 5001}}
	got := s.each(p)
	s.expect(got["pods"], map[string]string{"uid": "1000", "gid": "1500", "groups": "1500 5000 5001", "owner": "1000:1500"})
	s.expect(got["own"], map[string]string{"uid": "2000", "gid": "3000", "groups": "3000 5000 5001", "owner": "2000:3000"})
	s.expect(got["nobody"], map[string]string{"uid": "65534", "gid": "1500"})
	if u := container(s.get("who"), "own").User; u == nil || u.Linux == nil || u.Linux.UID != 2000 || u.Linux.GID != 3000 {
		s.Errorf("the status says the user is %+v", u)
	}
	root := s.each(newPod("root", sh("main", who)))["main"]
	s.expect(root, map[string]string{"uid": "0", "gid": "0", "owner": "0:0"})
}

func nonRoot(s *testNamespace) {
	c := secured("main", "id -u", corev1.SecurityContext{RunAsNonRoot: new(true)})
	s.create(newPod("root", c))
	p := s.wait("root", "to be refused", func(p *corev1.Pod) bool { return waiting(p, "main") == "CreateContainerConfigError" })
	if m := container(p, "main").State.Waiting.Message; !strings.HasPrefix(m, "container has runAsNonRoot and image will run as root") {
		s.Errorf("message: %s", m)
	}
	s.awaitEvent("root", "Failed: Error: container has runAsNonRoot and image will run as root")
	c.SecurityContext.RunAsUser = new(int64(7))
	if got := s.output(newPod("seven", c)); got != "7\n" {
		s.Errorf("it runs as %q", got)
	}
}

func fsGroup(s *testNamespace) {
	const look = "echo group=$(stat -c %g /data); echo mode=$(stat -c %a /data); touch /data/new; echo new=$(stat -c %g /data/new); echo groups=$(id -G); echo secret=$(stat -Lc %u:%g:%a /secret/key)"
	s.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: held}\nstringData: {key: value}\n")
	c := secured("main", look, corev1.SecurityContext{RunAsUser: new(int64(1000))})
	c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "secret", MountPath: "/secret"}}
	p := newPod("grouped", c)
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(4321))}
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "held", DefaultMode: new(int32(0o400))}}}}
	got := s.each(p)["main"]
	s.expect(got, map[string]string{"group": "4321", "mode": "2777", "new": "4321", "secret": "0:4321:440"})
	if !strings.Contains(" "+got["groups"]+" ", " 4321 ") {
		s.Errorf("groups are %s", got["groups"])
	}
}

// capability reports whether a set of /proc/PID/status has a capability.
func capability(s *testNamespace, set string, bit uint) bool {
	n, err := strconv.ParseUint(set, 16, 64)
	if err != nil {
		s.Fatalf("capabilities %q: %v", set, err)
	}
	return n&(1<<bit) != 0
}

const (
	capChown    = 0
	capNetAdmin = 12
	capNetRaw   = 13
	capSysAdmin = 21
)

const status = `sed -n 's/^\(Cap[A-Z][a-z]*\|NoNewPrivs\|Seccomp\):[ \t]*/\1=/p' /proc/self/status`

func capabilities(s *testNamespace) {
	got := s.each(newPod("caps", sh("default", status),
		secured("more", status, corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}}),
		secured("less", status, corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"CHOWN"}}}),
		secured("none", status, corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, AllowPrivilegeEscalation: new(false)}),
		secured("one", status, corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_RAW"}}})))
	for name, want := range map[string]map[uint]bool{
		"default": {capChown: true, capNetRaw: true, capNetAdmin: false, capSysAdmin: false}, "more": {capChown: true, capNetAdmin: true, capSysAdmin: false},
		"less": {capChown: false, capNetRaw: true}, "one": {capChown: false, capNetRaw: true},
	} {
		for bit, has := range want {
			if capability(s, got[name]["CapEff"], bit) != has {
				s.Errorf("%s: capability %d in %s is %v", name, bit, got[name]["CapEff"], !has)
			}
		}
	}
	s.expect(got["none"], map[string]string{"CapEff": "0000000000000000", "CapBnd": "0000000000000000", "NoNewPrivs": "1"})
	s.expect(got["default"], map[string]string{"NoNewPrivs": "0"})
}

func seccomp(s *testNamespace) {
	profile := func(kind corev1.SeccompProfileType) corev1.SecurityContext {
		return corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: kind}}
	}
	got := s.each(newPod("profiles", sh("none", status), secured("default", status+"; unshare -r true && echo unshared=yes; true", profile(corev1.SeccompProfileTypeRuntimeDefault)),
		secured("unconfined", status, profile(corev1.SeccompProfileTypeUnconfined))))
	s.expect(got["none"], map[string]string{"Seccomp": "0"})
	s.expect(got["unconfined"], map[string]string{"Seccomp": "0"})
	s.expect(got["default"], map[string]string{"Seccomp": "2", "unshared": ""})
	p := newPod("whole", sh("main", status))
	p.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	s.expect(s.each(p)["main"], map[string]string{"Seccomp": "2"})
	// What holds the pod together has one of its own, under which it does what it is there for: here it reaps.
	p = newPod("shared", sh("main", "echo pause=$(grep Seccomp: /proc/1/status | tr -dc 0-9); sh -c 'sleep 0.1 & exit 0'; sleep 1; echo zombies=$(grep -l '^State:.Z' /proc/[0-9]*/status | wc -l)"))
	p.Spec.ShareProcessNamespace = new(true)
	s.expect(s.each(p)["main"], map[string]string{"pause": "2", "zombies": "0"})
}

func privileged(s *testNamespace) {
	const look = status + "; echo devices=$(ls /dev | wc -l); mount -t tmpfs tmpfs /mnt 2>/dev/null || { mkdir -p /mnt; mount -t tmpfs tmpfs /mnt 2>/dev/null; } && echo mounted=yes; true"
	got := s.each(newPod("two", secured("all", look, corev1.SecurityContext{Privileged: new(true)}), sh("few", look)))
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		s.Fatal(err)
	}
	for line := range bytes.Lines(own) {
		if rest, ok := bytes.CutPrefix(line, []byte("CapBnd:")); ok {
			s.expect(got["all"], map[string]string{"CapEff": string(bytes.TrimSpace(rest)), "mounted": "yes", "Seccomp": "0"})
		}
	}
	s.expect(got["few"], map[string]string{"mounted": ""})
	all, _ := strconv.Atoi(got["all"]["devices"])
	few, _ := strconv.Atoi(got["few"]["devices"])
	if all <= few {
		s.Errorf("a privileged container sees %d devices, another %d", all, few)
	}
	// What is dangerous to read is hidden from others.
	const hidden = "echo masked=$(cat /proc/timer_list 2>/dev/null | wc -c); (echo 0 > /proc/sys/kernel/shmmni) 2>/dev/null && echo written=yes; true"
	s.expect(s.each(newPod("hidden", sh("main", hidden)))["main"], map[string]string{"masked": "0", "written": ""})
}

func readOnlyRoot(s *testNamespace) {
	c := secured("main", "touch /file 2>&1 && echo root=written; touch /data/file && echo volume=written; true", corev1.SecurityContext{ReadOnlyRootFilesystem: new(true)})
	c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	p := newPod("fixed", c)
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	s.expect(s.each(p)["main"], map[string]string{"root": "", "volume": "written"})
}

func hostNamespaces(s *testNamespace) {
	const look = "for n in net pid ipc uts; do echo $n=$(readlink /proc/self/ns/$n); done; echo hostname=$(hostname)"
	own := map[string]string{}
	for _, n := range []string{"net", "pid", "ipc", "uts"} {
		ns, err := os.Readlink("/proc/self/ns/" + n)
		if err != nil {
			s.Fatal(err)
		}
		own[n] = ns
	}
	p := newPod("host", sh("main", look))
	p.Spec.HostNetwork, p.Spec.HostPID, p.Spec.HostIPC = true, true, true
	on := s.each(p)["main"]
	s.expect(on, map[string]string{"net": own["net"], "pid": own["pid"], "ipc": own["ipc"]})
	if done := s.get("host"); done.Status.PodIP != done.Status.HostIP {
		s.Errorf("on the host network its address is %s, the node's %s", done.Status.PodIP, done.Status.HostIP)
	}
	off := s.each(newPod("own", sh("main", look+"; sleep 2"), sh("other", look+"; sleep 2")))
	for _, n := range []string{"net", "pid", "ipc", "uts"} {
		if off["main"][n] == own[n] || off["main"][n] == "" {
			s.Errorf("a pod of its own has the node's %s: %s", n, off["main"][n])
		}
		if same := off["main"][n] == off["other"][n]; same != (n != "pid") {
			s.Errorf("two containers of a pod have the same %s: %v", n, same)
		}
	}
	s.expect(off["main"], map[string]string{"hostname": "own"})
	// A pod can have a host name of its own.
	q := newPod("named", sh("main", "echo hostname=$(hostname)"))
	q.Spec.Hostname, q.Spec.Subdomain = "captain", "crew"
	s.expect(s.each(q)["main"], map[string]string{"hostname": "captain"})
}

// What skiff allows the kernel for itself is nothing to containers.
func timerSlack(s *testNamespace) {
	if got := strings.TrimSpace(s.read(fmt.Sprintf("/proc/%d/timerslack_ns", s.pid(s.T)))); got != strconv.Itoa(int(timerslack.Ample)) {
		s.Errorf("skiff has %s ns", got)
	}
	s.expect(s.each(newPod("slack", sh("main", "echo slack=$(cat /proc/self/timerslack_ns)")))["main"], map[string]string{"slack": strconv.Itoa(int(timerslack.Usual))})
}

func sharedProcesses(s *testNamespace) {
	p := newPod("shared", sh("main", forever), sh("other", "exec sleep 4321"))
	p.Spec.ShareProcessNamespace = new(true)
	s.create(p)
	s.running("shared")
	var first, rest string
	s.await("the processes of both containers", func() bool { // a container that was started is runc for a moment yet
		first, rest, _ = strings.Cut(s.exec("shared", "sh", "-c", "cat /proc/1/cmdline | tr '\\0' ' '; echo; cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), "\n")
		return strings.Contains(rest, "sleep 4321")
	})
	if !strings.Contains(first, "pause") {
		s.Errorf("process 1 is %q, and there are %q", first, rest)
	}
}

// pods finds the cgroups of a pod in a hierarchy of the machine.
func (s *testNamespace) groups(controller string, p *corev1.Pod) string {
	s.Helper()
	uid := string(p.UID)
	for _, base := range []string{"/sys/fs/cgroup/" + controller, "/sys/fs/cgroup"} {
		for _, class := range []string{"", "burstable", "besteffort"} {
			dirs, err := filepath.Glob(filepath.Join(base, "skiff", "*", "kubepods", class, "pod"+uid))
			if err != nil {
				s.Fatal(err)
			}
			if len(dirs) == 1 {
				return dirs[0]
			}
		}
	}
	s.Fatalf("pod %s has no cgroup in the hierarchy of %s", p.Name, controller)
	return ""
}

// value returns a file of a cgroup, by its name in the first or the second version.
func (s *testNamespace) value(dir, v1, v2 string) string {
	s.Helper()
	for _, name := range []string{v1, v2} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return strings.TrimSpace(string(data))
		}
	}
	s.Fatalf("%s has neither %s nor %s", dir, v1, v2)
	return ""
}

func quantities(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func qosCgroups(s *testNamespace) {
	guaranteed, burstable := newPod("guaranteed", sh("main", forever)), newPod("burstable", sh("main", forever))
	guaranteed.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: quantities("100m", "50Mi"), Limits: quantities("100m", "50Mi")}
	burstable.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: quantities("50m", "20Mi"), Limits: quantities("200m", "60Mi")}
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	unified := err == nil
	for class, p := range map[corev1.PodQOSClass]*corev1.Pod{corev1.PodQOSGuaranteed: guaranteed, corev1.PodQOSBurstable: burstable, corev1.PodQOSBestEffort: newPod("besteffort", sh("main", forever))} {
		s.create(p)
		p = s.running(p.Name)
		if p.Status.QOSClass != class {
			s.Errorf("%s is %s", p.Name, p.Status.QOSClass)
		}
		memory, cpu := s.groups("memory", p), s.groups("cpu", p)
		if parent := filepath.Base(filepath.Dir(memory)); parent != map[corev1.PodQOSClass]string{corev1.PodQOSGuaranteed: "kubepods", corev1.PodQOSBurstable: "burstable", corev1.PodQOSBestEffort: "besteffort"}[class] {
			s.Errorf("%s is in %s", p.Name, memory)
		}
		id := strings.TrimPrefix(container(p, "main").ContainerID, "containerd://")
		limit := map[corev1.PodQOSClass]string{corev1.PodQOSGuaranteed: "52428800", corev1.PodQOSBurstable: "62914560"}[class]
		for _, dir := range []string{memory, filepath.Join(memory, id)} {
			if got := s.value(dir, "memory.limit_in_bytes", "memory.max"); limit != "" && got != limit || limit == "" && got != "max" && len(got) < 16 {
				s.Errorf("%s: the memory limit of %s is %s, want %s", p.Name, dir, got, limit)
			}
		}
		if unified {
			continue // weights of the second version have a scale of their own
		}
		shares := map[corev1.PodQOSClass]string{corev1.PodQOSGuaranteed: "102", corev1.PodQOSBurstable: "51", corev1.PodQOSBestEffort: "2"}[class]
		quota := map[corev1.PodQOSClass]string{corev1.PodQOSGuaranteed: "10000", corev1.PodQOSBurstable: "20000", corev1.PodQOSBestEffort: "-1"}[class]
		for _, dir := range []string{cpu, filepath.Join(cpu, id)} {
			if got := s.value(dir, "cpu.shares", "cpu.weight"); got != shares {
				s.Errorf("%s: the shares of %s are %s, want %s", p.Name, dir, got, shares)
			}
			if got := s.value(dir, "cpu.cfs_quota_us", "cpu.max"); got != quota {
				s.Errorf("%s: the quota of %s is %s, want %s", p.Name, dir, got, quota)
			}
		}
	}
	gone := s.groups("memory", s.get("besteffort"))
	s.delete("besteffort")
	s.await("the cgroup to be gone", func() bool { _, err := os.Stat(gone); return os.IsNotExist(err) })
}

func memoryLimit(s *testNamespace) {
	hog, other := sh("hog", "tail /dev/zero"), sh("other", forever)
	hog.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("20Mi")}
	s.create(newPod("hungry", hog, other))
	p := s.wait("hungry", "to lose its container", func(p *corev1.Pod) bool { return container(p, "hog").State.Terminated != nil })
	if end := container(p, "hog").State.Terminated; end.Reason != "OOMKilled" || end.ExitCode != 137 {
		s.Errorf("%+v", end)
	}
	if c := container(p, "other"); c.State.Running == nil || c.RestartCount != 0 {
		s.Errorf("its neighbour: %+v", c.State)
	}
}

// A fork bomb stops at the PID limit of its pod.
func processLimit(s *testNamespace) {
	s.create(newPod("bounded", sh("main", forever)))
	p := s.running("bounded")
	if got, err := strconv.Atoi(s.value(s.groups("pids", p), "pids.max", "pids.max")); err != nil || got <= 0 {
		s.Errorf("pods may have %d processes: %v", got, err)
	}
}
