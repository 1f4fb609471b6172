package node

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"skiff/test/program"
)

// ask sends a request to the kubelet's server.
func (s *testNamespace) ask(token, path string) (int, string) {
	s.Helper()
	var address string
	for _, a := range s.node().Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			address = a.Address
		}
	}
	rq, err := http.NewRequestWithContext(s.Context(), "GET", "https://"+address+":10250"+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	if token != "" {
		rq.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	resp, err := client.Do(rq)
	if err != nil {
		s.Fatal(err)
	}
	defer closeAll(resp.Body)
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(body)
}

// The kubelet authenticates and authorizes its clients by reviews of the API.
func serverAuthentication(s *testNamespace) {
	if code, _ := s.ask("", "/pods"); code != http.StatusUnauthorized {
		s.Errorf("who does not say who he is gets %d", code)
	}
	if code, _ := s.ask("made-up", "/pods"); code != http.StatusUnauthorized {
		s.Errorf("who shows a token that is none gets %d", code)
	}
	token, err := s.api.CoreV1().ServiceAccounts(s.name).CreateToken(s.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	if code, body := s.ask(token.Status.Token, "/pods"); code != http.StatusForbidden || !strings.Contains(body, "resource=nodes, subresource(s)=[pods proxy])") {
		s.Errorf("who may not gets %d: %s", code, body)
	}
	role := "reads-kubelets-" + s.name
	if _, err := s.api.RbacV1().ClusterRoles().Create(s.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/pods", "nodes/stats"}, Verbs: []string{"get"}}}}, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	if _, err := s.api.RbacV1().ClusterRoleBindings().Create(s.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "default", Namespace: s.name}}}, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.api.RbacV1().ClusterRoleBindings().Delete(ctx, role, metav1.DeleteOptions{}); err != nil {
			s.Error(err)
		}
		if err := s.api.RbacV1().ClusterRoles().Delete(ctx, role, metav1.DeleteOptions{}); err != nil {
			s.Error(err)
		}
	})
	// A denied review is cached for half a minute; another account is another review.
	token, err = s.api.CoreV1().ServiceAccounts(s.name).CreateToken(s.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	s.await("the role to count", func() bool { code, _ := s.ask(token.Status.Token, "/stats/summary"); return code == http.StatusOK })
	if code, _ := s.ask(token.Status.Token, "/metrics"); code != http.StatusForbidden {
		s.Errorf("who may read pods and stats gets %d for metrics", code)
	}
	if code, _ := s.ask("", "/healthz"); code != http.StatusUnauthorized && code != http.StatusOK {
		s.Errorf("anybody gets %d for health", code)
	}
}

func serverPods(s *testNamespace) {
	s.create(newPod("seen", sh("main", forever)))
	p := s.running("seen")
	for _, path := range []string{"pods", "runningpods/"} {
		body, err := s.raw("/api/v1/nodes/" + nodeName + "/proxy/" + path)
		if err != nil {
			s.Fatal(err)
		}
		var list corev1.PodList
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			s.Fatalf("%v: %s", err, body)
		}
		if !slices.ContainsFunc(list.Items, func(q corev1.Pod) bool { return q.UID == p.UID && q.Name == "seen" && len(q.Spec.Containers) == 1 }) {
			s.Errorf("/%s does not have the pod", path)
		}
	}
	for path, want := range map[string]string{"healthz": "ok", "healthz/ping": "ok", "healthz/log": "ok", "healthz/syncloop": "ok"} {
		if body, err := s.raw("/api/v1/nodes/" + nodeName + "/proxy/" + path); err != nil || body != want {
			s.Errorf("/%s: %q, %v", path, body, err)
		}
	}
	body, err := s.raw("/api/v1/nodes/" + nodeName + "/proxy/configz")
	if err != nil {
		s.Fatal(err)
	}
	var shown struct {
		Config struct {
			APIVersion, Kind         string
			MaxPods                  int
			ClusterDomain            string
			ContainerRuntimeEndpoint string
		} `json:"kubeletconfig"`
	}
	if err := json.Unmarshal([]byte(body), &shown); err != nil {
		s.Fatalf("%v: %s", err, body)
	}
	if c := shown.Config; c.APIVersion != "kubelet.config.k8s.io/v1beta1" || c.Kind != "KubeletConfiguration" || c.MaxPods != 110 || c.ClusterDomain != "cluster.local" ||
		!strings.HasPrefix(c.ContainerRuntimeEndpoint, "unix:///") {
		s.Errorf("/configz: %s", body)
	}
}

func stats(s *testNamespace) {
	busy := sh("busy", "while true; do true; done")
	busy.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: quantities("200m", "1")[corev1.ResourceCPU], corev1.ResourceMemory: quantities("1", "64Mi")[corev1.ResourceMemory]}
	idle := sh("idle", "head -c 5000000 /dev/zero > /layer; head -c 3000000 /dev/zero > /data/file; wget -q -O /dev/null http://127.0.0.1:1/; "+forever)
	idle.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	p := newPod("used", busy, idle)
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	s.create(p)
	s.running("used")
	var sum statsapi.Summary
	var of *statsapi.PodStats
	s.await("statistics with what the pod has written, and a container at rest", func() bool {
		body, err := s.raw("/api/v1/nodes/" + nodeName + "/proxy/stats/summary")
		if err != nil {
			s.Fatal(err)
		}
		sum = statsapi.Summary{}
		if err := json.Unmarshal([]byte(body), &sum); err != nil {
			s.Fatal(err)
		}
		i := slices.IndexFunc(sum.Pods, func(p statsapi.PodStats) bool { return p.PodRef.Namespace == s.name && p.PodRef.Name == "used" })
		if i < 0 || len(sum.Pods[i].Containers) != 2 {
			return false
		}
		of = &sum.Pods[i]
		written := of.EphemeralStorage != nil && *of.EphemeralStorage.UsedBytes > 8_000_000
		// Rates are of two looks some seconds apart: the first of them may be of when the idle container was not idle yet.
		rests := slices.ContainsFunc(of.Containers, func(c statsapi.ContainerStats) bool {
			return c.Name == "idle" && c.CPU != nil && c.CPU.UsageNanoCores != nil && *c.CPU.UsageNanoCores < 50_000_000
		})
		// containerd measures images every few seconds.
		images := sum.Node.Runtime != nil && sum.Node.Runtime.ImageFs != nil && *sum.Node.Runtime.ImageFs.UsedBytes > 0
		return written && rests && images
	})
	n := sum.Node
	if n.NodeName != nodeName || *n.CPU.UsageCoreNanoSeconds == 0 || n.CPU.UsageNanoCores == nil || *n.Memory.WorkingSetBytes == 0 || *n.Memory.AvailableBytes == 0 ||
		*n.Fs.CapacityBytes == 0 || *n.Rlimit.MaxPID == 0 || *n.Rlimit.NumOfRunningProcesses == 0 || n.Network == nil {
		body, _ := json.MarshalIndent(n, "", " ")
		s.Errorf("node:\n%s", body)
	}
	body, _ := json.MarshalIndent(of, "", " ")
	for i := range of.Containers {
		c := &of.Containers[i]
		if c.CPU == nil || c.Memory == nil || *c.Memory.WorkingSetBytes == 0 || c.CPU.UsageNanoCores == nil || time.Since(c.CPU.Time.Time) > 15*time.Second {
			s.Errorf("container %s:\n%s", c.Name, body)
			continue
		}
		switch c.Name {
		case "busy":
			if rate := *c.CPU.UsageNanoCores; rate < 20_000_000 || rate > 400_000_000 {
				s.Errorf("a busy container with a limit of 200m uses %d nanocores", rate)
			}
			if c.Memory.AvailableBytes == nil || *c.Memory.AvailableBytes > 64<<20 {
				s.Errorf("of 64Mi %v are available", c.Memory.AvailableBytes)
			}
		case "idle":
			if c.Rootfs == nil || *c.Rootfs.UsedBytes < 5_000_000 {
				s.Errorf("what is written in a container is not counted:\n%s", body)
			}
		}
	}
	if of.Network == nil || of.Network.Name != "eth0" || of.Network.RxBytes == nil {
		s.Errorf("the pod's network:\n%s", body)
	}
	if i := slices.IndexFunc(of.VolumeStats, func(v statsapi.VolumeStats) bool { return v.Name == "data" }); i < 0 || *of.VolumeStats[i].UsedBytes < 3_000_000 {
		s.Errorf("the pod's volume:\n%s", body)
	}
}

func metrics(s *testNamespace) {
	p := newPod("measured", sh("main", forever))
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}, PeriodSeconds: 1}
	s.create(p)
	s.running("measured")
	label := fmt.Sprintf(`\{container="main",namespace="%s",pod="measured"\} [0-9.e+]+`, s.name)
	for path, want := range map[string][]string{
		"metrics/resource": {"\nnode_cpu_usage_seconds_total ", "\nnode_memory_working_set_bytes ", "container_cpu_usage_seconds_total" + label, "container_memory_working_set_bytes" + label,
			"container_start_time_seconds" + label, `pod_memory_working_set_bytes\{namespace="` + s.name + `",pod="measured"\} [1-9]`, "resource_scrape_error 0"},
		"metrics": {"kubelet_pod_start_sli_duration_seconds_count [1-9]", "kubelet_pod_start_total_duration_seconds_bucket", "kubelet_started_containers_total",
			"kubelet_node_name{node=\"" + nodeName + "\"} 1", "kubelet_running_pods [1-9]", `kubelet_running_containers\{container_state="running"\} [1-9]`, `kubelet_runtime_operations_total\{operation_type="run_podsandbox"\} [1-9]`,
			`kubelet_http_requests_total\{.*path="metrics".*\} [1-9]`, "process_resident_memory_bytes [1-9]", "go_goroutines [1-9]"},
		"metrics/cadvisor": {`container_memory_rss\{`, `container_network_receive_bytes_total\{`},
		"metrics/probes": {`prober_probe_total\{container="main",namespace="` + s.name + `",pod="measured",pod_uid="[^"]+",probe_type="Readiness",result="successful"\} [1-9]`,
			`prober_probe_duration_seconds_count\{container="main",namespace="` + s.name + `",pod="measured",probe_type="Readiness"\} [1-9]`},
	} {
		for _, w := range want { // what was measured a moment ago may be from before the pod ran
			s.await("/"+path+" to have "+w, func() bool {
				body, err := s.raw("/api/v1/nodes/" + nodeName + "/proxy/" + path)
				if err != nil {
					s.Fatalf("/%s: %v", path, err)
				}
				return regexp.MustCompile(w).MatchString(body)
			})
		}
	}
}

func logs(s *testNamespace) {
	p := newPod("talks", sh("main", "for i in 1 2 3 4 5; do echo line $i; done; sleep 0.3; echo wrong >&2; [ -e /shared/once ] && { trap 'exit 0' TERM; sleep 1000 & wait; }; touch /shared/once; exit 1"))
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	s.mounted(p)
	s.create(p)
	s.wait("talks", "to run again", func(p *corev1.Pod) bool {
		c := container(p, "main")
		return c.RestartCount == 1 && c.State.Running != nil
	})
	const all = "line 1\nline 2\nline 3\nline 4\nline 5\n"
	s.await("the log", func() bool { return len(lines(s.logs("talks", &corev1.PodLogOptions{}))) == 6 })
	for name, c := range map[string]struct {
		o    corev1.PodLogOptions
		want string
	}{
		"tail":     {corev1.PodLogOptions{TailLines: new(int64(2))}, "line 5\nwrong\n"},
		"bytes":    {corev1.PodLogOptions{LimitBytes: new(int64(10))}, all[:10]},
		"previous": {corev1.PodLogOptions{Previous: true, TailLines: new(int64(6))}, all + "wrong\n"},
		"none":     {corev1.PodLogOptions{SinceTime: &metav1.Time{Time: time.Now().Add(time.Hour)}}, ""},
	} {
		if got := s.logs("talks", &c.o); got != c.want {
			s.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	stamped := lines(s.logs("talks", &corev1.PodLogOptions{Timestamps: true}))
	if at, _, _ := strings.Cut(stamped[0], " "); len(stamped) != 6 {
		s.Errorf("with times: %q", stamped)
	} else if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
		s.Error(err)
	}
	// Files are where others look for them.
	link := filepath.Join(s.dir, "log", "containers", fmt.Sprintf("talks_%s_main-%s.log", s.name, strings.TrimPrefix(container(s.get("talks"), "main").ContainerID, "containerd://")))
	if data, err := os.ReadFile(link); err != nil || !strings.Contains(string(data), " stdout F line 1\n") {
		s.Errorf("%s: %v\n%s", link, err, data)
	}
	s.create(newPod("missing", corev1.Container{Name: "main", Image: "skiff.internal/none", ImagePullPolicy: corev1.PullNever}))
	s.wait("missing", "to wait", func(p *corev1.Pod) bool { return waiting(p, "main") != "" && p.Spec.NodeName != "" })
	if _, err := s.api.CoreV1().Pods(s.name).GetLogs("missing", &corev1.PodLogOptions{}).Stream(s.Context()); err == nil || !strings.Contains(err.Error(), `container "main" in pod "missing" is waiting to start`) {
		s.Errorf("the log of a container that was never started: %v", err)
	}
}

// A log is rotated when it is large: no line is lost, followers continue with the new file, and old files are compressed and bounded.
func logRotation(s *testNamespace) {
	// Three times more than a log may have, and time to notice: it is looked at every ten seconds.
	p := newPod("floods", sh("main", "x="+strings.Repeat("x", 8000)+"; for round in 1 2 3; do i=0; while [ $i -lt 1500 ]; do i=$((i+1)); echo $round $i $x; done; echo end of $round; sleep 11; done; "+forever))
	s.create(p)
	p = s.running("floods")
	dir := filepath.Join(s.dir, "log", "pods", fmt.Sprintf("%s_floods_%s", s.name, p.UID), "main")
	var names []string
	list := func() []string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			s.Fatal(err)
		}
		names = nil
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	stream, err := s.api.CoreV1().Pods(s.name).GetLogs("floods", &corev1.PodLogOptions{Follow: true}).Stream(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	defer closeAll(stream)
	heard, ended := map[string]int{}, 0 // lines of each round, rounds that are over
	for r := bufio.NewReaderSize(stream, 64<<10); ended < 3; {
		line, err := r.ReadString('\n')
		if err != nil {
			s.Fatalf("after %v: %v", heard, err)
		}
		if round, _, _ := strings.Cut(line, " "); round != "end" {
			heard[round]++
		} else {
			ended++
		}
	}
	if heard["1"] != 1500 || heard["2"] != 1500 || heard["3"] != 1500 {
		s.Errorf("who follows the log hears so many of 1500 lines: %v", heard)
	}
	compressed := func(n string) bool { return strings.HasSuffix(n, ".gz") }
	s.await("the log to be rotated twice", func() bool { return slices.ContainsFunc(list(), compressed) })
	if len(names) > 5 || !slices.Contains(names, "0.log") {
		s.Errorf("there are %q", names)
	}
	for _, n := range names {
		if !compressed(n) {
			continue
		}
		f, err := os.Open(filepath.Join(dir, n))
		if err != nil {
			continue // a later rotation removed it
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			s.Errorf("%s: %v", n, err)
		} else if data, err := io.ReadAll(z); err != nil || !strings.Contains(string(data), " stdout F ") {
			s.Errorf("%s: %v", n, err)
		}
		closeAll(f)
	}
}

// Of a container that has exited often, only the last run is kept, for its log.
func containerGarbage(s *testNamespace) {
	p := newPod("litters", sh("main", "[ $(ls /shared | wc -l) -ge 3 ] && { "+forever+"; }; touch /shared/$(date +%s%N); exit 1"))
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	s.mounted(p)
	s.create(p)
	s.wait("litters", "to be started twice again", func(p *corev1.Pod) bool { return container(p, "main").RestartCount >= 2 })
	links := func() []string {
		m, err := filepath.Glob(filepath.Join(s.dir, "log", "containers", "litters_"+s.name+"_main-*.log"))
		if err != nil {
			s.Fatal(err)
		}
		return m
	}
	s.wait("litters", "to stay", func(p *corev1.Pod) bool {
		c := container(p, "main")
		return c.RestartCount >= 3 && c.State.Running != nil
	})
	for deadline := time.Now().Add(2 * time.Minute); len(links()) > 2; time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			s.Fatalf("after 2 minutes there is still %q", links())
		}
	}
	if got := s.logs("litters", &corev1.PodLogOptions{Previous: true}); got != "" {
		s.Errorf("the run before said %q", got)
	}
}

// A host port is forwarded to a pod as long as the pod exists: on loopback only if the pod asks for that, and never a reserved port.
func hostPorts(s *testNamespace) {
	port, err := strconv.Atoi(program.Port(s))
	if err != nil {
		s.Fatal(err)
	}
	p := newPod("reached", testserver("main"))
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: int32(port)}}
	s.create(p)
	p = s.running("reached")
	url := func(host string) string { return fmt.Sprintf("http://%s:%d/hostname", host, port) }
	s.await("the pod to answer at "+url(p.Status.HostIP), func() bool { return get(url(p.Status.HostIP)) == "reached\n" })
	if got := get(url("127.0.0.1")); got != "" {
		s.Errorf("loopback leads to the pod: %q", got)
	}
	local := newPod("local", testserver("main"))
	local.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: int32(port), HostIP: "127.0.0.1"}}
	reserved := newPod("reserved", testserver("main"))
	reserved.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 10250}}
	s.create(reserved)
	s.await("the pod that wants the kubelet's port to be rejected", func() bool { return s.get("reserved").Status.Phase == corev1.PodFailed })
	if got := s.get("reserved").Status; got.Reason != "NodePorts" || !strings.Contains(got.Message, "host port 10250/TCP belongs to the kubelet of this node") {
		s.Errorf("the pod that wants the kubelet's port: %s: %s", got.Reason, got.Message)
	}
	if got := s.output(newPod("asks", sh("main", "wget -q -O - "+url(p.Status.HostIP)))); got != "reached\n" {
		s.Errorf("another pod is answered %q", got)
	}
	s.delete("reached")
	if got := get(url(p.Status.HostIP)); got != "" {
		s.Errorf("without the pod the port says %q", got)
	}
	s.create(local)
	s.running("local")
	s.await("the pod to answer at "+url("127.0.0.1"), func() bool { return get(url("127.0.0.1")) == "local\n" })
	if got := get(url(p.Status.HostIP)); got != "" {
		s.Errorf("a port on loopback says at the node's address %q", got)
	}
}
