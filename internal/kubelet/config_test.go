package kubelet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/kubelettest"
)

// What a pod says of its security, its resources and its surroundings reaches the runtime.
func TestConfig(t *testing.T) {
	w := newFixture(t)
	pod := w.create("web", `
hostname: box
shareProcessNamespace: true
dnsPolicy: ClusterFirst
hostAliases: [{ip: 192.0.2.9, hostnames: [nine]}]
securityContext: {runAsUser: 1000, runAsGroup: 2000, fsGroup: 3000, supplementalGroups: [4000], seccompProfile: {type: RuntimeDefault}, sysctls: [{name: net/ipv4/ip_unprivileged_port_start, value: "0"}]}
containers:
- name: a
  image: nginx
  command: [run, $(WHO)]
  args: [$$x]
  workingDir: /srv
  stdin: true
  env: [{name: WHO, value: me}]
  ports: [{containerPort: 80, hostPort: 8081, protocol: UDP}]
  resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: "1", memory: 128Mi}}
  securityContext: {runAsUser: 1001, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {add: [NET_ADMIN], drop: [ALL]}}
- {name: b, image: nginx, securityContext: {privileged: true, procMount: Default, seccompProfile: {type: Unconfined}}}
`)
	w.await("web", ready)
	sandbox := w.runtime.Sandboxes(pod.UID)[0]
	sc := sandbox.Linux.SecurityContext
	if sandbox.Hostname != "box" || !strings.HasSuffix(sandbox.LogDirectory, "default_web_"+string(pod.UID)) || sandbox.Labels["io.kubernetes.pod.uid"] != string(pod.UID) ||
		sandbox.Linux.CgroupParent != "/kubepods/pod"+string(pod.UID) || sandbox.Linux.Sysctls["net.ipv4.ip_unprivileged_port_start"] != "0" ||
		!slices.Equal(sandbox.DnsConfig.Servers, []string{"10.43.0.10"}) {
		t.Errorf("sandbox %+v", sandbox)
	}
	if sc.Seccomp.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault || sc.NamespaceOptions.Pid != runtimeapi.NamespaceMode_POD || sc.RunAsUser.Value != 1000 || !sc.Privileged ||
		!slices.Equal(sc.SupplementalGroups, []int64{3000, 4000}) {
		t.Errorf("security of the sandbox %+v", sc)
	}
	if p := sandbox.PortMappings[0]; p.HostPort != 8081 || p.Protocol != runtimeapi.Protocol_UDP {
		t.Errorf("port %+v", p)
	}
	a := w.container(pod.UID, "a").Config
	if !slices.Equal(a.Command, []string{"run", "me"}) || !slices.Equal(a.Args, []string{"$x"}) || a.WorkingDir != "/srv" || !a.Stdin || a.LogPath != "a/0.log" {
		t.Errorf("container %+v", a)
	}
	as := a.Linux.SecurityContext
	if as.RunAsUser.Value != 1001 || as.RunAsGroup.Value != 2000 || !as.ReadonlyRootfs || !as.NoNewPrivs || as.Privileged || len(as.MaskedPaths) == 0 ||
		!slices.Equal(as.Capabilities.AddCapabilities, []string{"NET_ADMIN"}) || as.Seccomp.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault {
		t.Errorf("security %+v", as)
	}
	r := a.Linux.Resources
	if r.CpuShares != 102 || r.CpuQuota != 100_000 || r.MemoryLimitInBytes != 128<<20 || r.OomScoreAdj < 3 || r.OomScoreAdj > 999 {
		t.Errorf("resources %+v", r)
	}
	b := w.container(pod.UID, "b").Config.Linux
	if !b.SecurityContext.Privileged || b.SecurityContext.Seccomp.ProfileType != runtimeapi.SecurityProfile_Unconfined || b.Resources.CpuShares != 2 {
		t.Errorf("container b %+v", b)
	}
	var hosts string
	for _, m := range a.Mounts {
		if m.ContainerPath == "/etc/hosts" {
			data, err := os.ReadFile(m.HostPath)
			if err != nil {
				t.Fatal(err)
			}
			hosts = string(data)
		}
	}
	if ip := w.get("web").Status.PodIP; !strings.Contains(hosts, ip+"\tbox") || !strings.Contains(hosts, "192.0.2.9\tnine") {
		t.Errorf("hosts file %q", hosts)
	}
	links, err := filepath.Glob(filepath.Join(w.dir, "containers", "web_default_a-*.log"))
	if err != nil || len(links) != 1 {
		t.Errorf("links to logs: %v", links)
	}
}

// What the runtime runs to hold a pod together can have a profile of its own.
func TestSandboxSeccomp(t *testing.T) {
	w := newFixture(t)
	w.stop()
	w.start(func(o *Options) { o.SandboxSeccomp = "/run/pause.json" })
	pod := w.create("web", "{containers: [{name: a, image: nginx}], securityContext: {seccompProfile: {type: RuntimeDefault}}}")
	w.await("web", ready)
	if s := w.runtime.Sandboxes(pod.UID)[0].Linux.SecurityContext.Seccomp; s.ProfileType != runtimeapi.SecurityProfile_Localhost || s.LocalhostRef != "/run/pause.json" {
		t.Errorf("the sandbox's profile: %v", s)
	}
	if s := w.container(pod.UID, "a").Config.Linux.SecurityContext.Seccomp; s.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault {
		t.Errorf("the container's profile: %v", s)
	}
}

// A pod on the host's network has no name and no ports of its own.
func TestHostNetwork(t *testing.T) {
	w := newFixture(t)
	pod := w.create("net", "{hostNetwork: true, hostPID: true, hostIPC: true, containers: [{name: a, image: nginx}]}")
	got := w.await("net", ready)
	if got.Status.PodIP != got.Status.HostIP {
		t.Errorf("pod %s, host %s", got.Status.PodIP, got.Status.HostIP)
	}
	s := w.runtime.Sandboxes(pod.UID)[0]
	n := s.Linux.SecurityContext.NamespaceOptions
	if s.Hostname != "" || n.Network != runtimeapi.NamespaceMode_NODE || n.Pid != runtimeapi.NamespaceMode_NODE || n.Ipc != runtimeapi.NamespaceMode_NODE {
		t.Errorf("sandbox %+v", s)
	}
}

// A container that must not run as root does not, whatever its image says.
func TestRunAsNonRoot(t *testing.T) {
	w := newFixture(t)
	uid := int64(1234)
	w.runtime.AddImage(kubelettest.Image{Name: "named:1", Present: true, User: "somebody"})
	w.runtime.AddImage(kubelettest.Image{Name: "numbered:1", Present: true, UID: &uid})
	spec := func(image string) string {
		return "{containers: [{name: a, image: '" + image + "', securityContext: {runAsNonRoot: true}}]}"
	}
	w.create("root", spec("nginx"))
	w.create("named", spec("named:1"))
	numbered := w.create("numbered", spec("numbered:1"))
	for name, message := range map[string]string{"root": "container has runAsNonRoot and image will run as root (pod: ", "named": "container has runAsNonRoot and image has non-numeric user (somebody)"} {
		pod := w.await(name, waitingFor("CreateContainerConfigError"))
		if m := pod.Status.ContainerStatuses[0].State.Waiting.Message; !strings.HasPrefix(m, message) {
			t.Errorf("%s: %q", name, m)
		}
	}
	w.await("numbered", ready)
	if u := w.container(numbered.UID, "a").Config.Linux.SecurityContext.RunAsUser; u.GetValue() != uid {
		t.Errorf("runs as %v", u)
	}
}

// What a container needs and cannot have is tried again until it can.
func TestMissingConfigMap(t *testing.T) {
	w := newFixture(t)
	w.create("web", "{containers: [{name: a, image: nginx, envFrom: [{configMapRef: {name: settings}}]}]}")
	w.await("web", func(p *corev1.Pod) bool { // the first answer may be that the node has no pod that uses it: the authorizer hears of a pod a moment later
		return waitingFor("CreateContainerConfigError")(p) && p.Status.ContainerStatuses[0].State.Waiting.Message == `configmap "settings" not found`
	})
	w.createConfigMap("settings", map[string]string{"COLOR": "blue"})
	pod := w.await("web", ready)
	env := w.container(pod.UID, "a").Config.Envs
	if !slices.ContainsFunc(env, func(e *runtimeapi.KeyValue) bool { return e.Key == "COLOR" && string(e.Value) == "blue" }) {
		t.Errorf("environment %v", env)
	}
}

// Restart counts are not lost with the runtime's state: the logs that are there tell.
func TestRestartsByLogs(t *testing.T) {
	w := newFixture(t)
	w.stop()
	pod := w.create("web", "{containers: [{name: a, image: nginx}]}")
	dir := filepath.Join(w.kubelet.logs.PodDir(pod), "a")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"0.log", "4.log.20300101-000000.gz", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	if got := w.await("web", ready); got.Status.ContainerStatuses[0].RestartCount != 5 {
		t.Errorf("restarts %d, want 5", got.Status.ContainerStatuses[0].RestartCount)
	}
}

// An ephemeral container joins a pod that runs, and sees its target's processes.
func TestEphemeralContainer(t *testing.T) {
	w := newFixture(t)
	w.create("web", "{containers: [{name: a, image: nginx}]}")
	pod := w.await("web", ready)
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{TargetContainerName: "a",
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Image: "nginx", ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePolicy: corev1.TerminationMessageReadFile}})
	w.updateEphemeral(pod)
	w.await("web", func(p *corev1.Pod) bool {
		s := p.Status.EphemeralContainerStatuses
		return len(s) == 1 && s[0].State.Running != nil
	})
	n := w.container(pod.UID, "e").Config.Linux.SecurityContext.NamespaceOptions
	if n.Pid != runtimeapi.NamespaceMode_TARGET || n.TargetId != w.container(pod.UID, "a").ID {
		t.Errorf("namespaces %+v", n)
	}
}

// A node that runs a resolver of its own names its loopback, where nothing answers in a pod; such pods are given the servers behind it.
func TestResolverBehindTheLoopback(t *testing.T) {
	w := newFixture(t)
	stub, behind := filepath.Join(w.dir, "resolv.conf"), filepath.Join(w.dir, "behind.conf")
	for name, text := range map[string]string{stub: "nameserver 127.0.0.53\noptions edns0\n", behind: "nameserver 192.0.2.53\nsearch example.com\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.stop()
	w.start(func(o *Options) { o.ResolvConf = []string{stub, behind} })
	pod := w.create("web", "{dnsPolicy: Default, containers: [{name: a, image: nginx}]}")
	w.await("web", ready)
	if dns := w.runtime.Sandboxes(pod.UID)[0].DnsConfig; !slices.Equal(dns.Servers, []string{"192.0.2.53"}) || !slices.Equal(dns.Searches, []string{"example.com"}) {
		t.Errorf("the pod resolves names by %v", dns)
	}
}
