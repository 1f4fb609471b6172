package server_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

const hour = time.Hour

func now() time.Time { return time.Now() }

func TestPods(t *testing.T) {
	n := start(t)
	pod := n.run("p")
	n.run("stopped")
	n.exit("stopped")
	admin := n.api.Config().BearerToken
	for path, containers := range map[string]int{"/pods": 2, "/runningpods/": 1} {
		code, body := n.ask("GET", path, admin)
		var list corev1.PodList
		if err := json.Unmarshal([]byte(body), &list); code != 200 || err != nil || list.Kind != "PodList" || list.APIVersion != "v1" || len(list.Items) != 2 {
			t.Fatalf("%s: %d %v %s", path, code, err, body)
		}
		total := 0
		for _, p := range list.Items {
			total += len(p.Spec.Containers)
			if p.Name == "p" && (p.UID != pod.UID || p.Namespace != "default" || p.Spec.Containers[0].Name != "c" || p.Spec.Containers[0].Image != "i") {
				t.Errorf("%s: %+v", path, p)
			}
		}
		if total != containers {
			t.Errorf("%s: %d containers, want %d", path, total, containers)
		}
	}
	if code, _ := n.ask("DELETE", "/pods", admin); code != 405 {
		t.Errorf("DELETE: %d", code)
	}
}

func TestRun(t *testing.T) {
	n := start(t)
	pod := n.run("p")
	admin := n.api.Config().BearerToken
	for path, want := range map[string]string{
		"/run/default/p/c?cmd=ls%20-l":                         "200 ls+-l",
		"/run/default/p/" + string(pod.UID) + "/c?cmd=ls%20-l": "200 ls+-l",
		"/run/default/p/other-uid/c?cmd=ls":                    "404 pod does not exist",
		"/run/default/none/c?cmd=ls":                           "404 pod does not exist",
		"/run/default/p/none?cmd=ls":                           `500 container not found ("none")`,
		"/run/default/p/c?cmd=false":                           "500 command 'false' exited with 1: no",
	} {
		code, body := n.ask("POST", path, admin)
		if got := strings.TrimSpace(strings.Join([]string{itoa(code), body}, " ")); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	for path, want := range map[string]int{"/exec/default/p/c": 400, "/exec/default/none/c?output=1": 404, "/attach/default/p/none?output=1": 500,
		"/portForward/default/none": 404, "/exec/default/p/c?output=1": 500, "/portForward/default/p": 500} {
		if code, body := n.ask("POST", path, admin); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
}

func itoa(n int) string {
	return string([]byte{byte('0' + n/100), byte('0' + n/10%10), byte('0' + n%10)})
}

func TestMonitoring(t *testing.T) {
	n := start(t)
	n.run("p")
	admin := n.api.Config().BearerToken
	var s statsapi.Summary
	code, body := n.ask("GET", "/stats/summary", admin)
	if err := json.Unmarshal([]byte(body), &s); code != 200 || err != nil || s.Node.NodeName != "n" || *s.Pods[0].Network.RxBytes != 4096 {
		t.Errorf("%d %v %s", code, err, body)
	}
	if code, body := n.ask("GET", "/stats/summary?only_cpu_and_memory=true", admin); code != 200 || strings.Contains(body, "eth0") {
		t.Errorf("%d %s", code, body)
	}
	for path, want := range map[string][]string{
		"/metrics/resource": {
			"node_cpu_usage_seconds_total 2.5 1700000000000\n", "node_memory_working_set_bytes 4096 1700000000000\n",
			`container_cpu_usage_seconds_total{container="c",namespace="default",pod="p"} 2.5 1700000000000` + "\n",
			`container_start_time_seconds{container="c",namespace="default",pod="p"} 1.7e+09` + "\n",
			`pod_memory_working_set_bytes{namespace="default",pod="p"} 4096 1700000000000` + "\n", "resource_scrape_error 0\n",
		},
		"/metrics/cadvisor": {
			`container_cpu_usage_seconds_total{container="c",cpu="total",id="containerd://p-0",image="i",name="containerd://p-0",namespace="default",pod="p"} 2.5 1700000000000` + "\n",
			`container_network_receive_bytes_total{container="",id="",image="",interface="eth0",name="",namespace="default",pod="p"} 4096 1700000000000` + "\n",
			`container_memory_working_set_bytes{container="",id="/",image="",name="",namespace="",pod=""} 4096 1700000000000` + "\n",
		},
		"/metrics":             {`kubelet_http_requests_total{long_running="false",method="GET",path="stats",server_type="readwrite"} 2` + "\n"},
		"/metrics/probes":      {""},
		"/metrics/slis":        {`kubernetes_healthcheck{name="syncloop",type="healthz"} 1` + "\n", `kubernetes_healthchecks_total{name="ping",status="success",type="healthz"}`},
		"/healthz":             {"ok"},
		"/healthz/ping":        {"ok"},
		"/healthz?verbose":     {"[+]syncloop ok\n"},
		"/configz":             {`{"kubeletconfig":{"maxPods":110}}`},
		"/debug/pprof/cmdline": {"server.test"},
	} {
		code, body := n.ask("GET", path, admin)
		for _, part := range want {
			if code != 200 || !strings.Contains(body, part) {
				t.Errorf("%s: %d, no %q in\n%s", path, code, part, body)
			}
		}
	}
	n.sick = errors.New("nothing was done for 3m")
	for path, want := range map[string]string{"/healthz": "[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n", "/healthz/syncloop": "internal server error: nothing was done for 3m\n",
		"/stats/summary": "nothing was done for 3m"} {
		if code, body := n.ask("GET", path, admin); code != 500 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if _, body := n.ask("GET", "/metrics/slis", admin); !strings.Contains(body, `kubernetes_healthcheck{name="syncloop",type="healthz"} 0`+"\n") {
		t.Errorf("%s", body)
	}
	if _, body := n.ask("GET", "/metrics/resource", admin); !strings.Contains(body, "resource_scrape_error 1\n") {
		t.Errorf("%s", body)
	}
	if code, _ := n.ask("GET", "/nowhere", admin); code != 404 {
		t.Errorf("/nowhere: %d", code)
	}
}

func TestSystemLogs(t *testing.T) {
	n := start(t)
	admin := n.api.Config().BearerToken
	if err := os.MkdirAll(filepath.Join(n.logs, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.logs, "sub", "system.log"), []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(filepath.Dir(n.logs), "outside")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(outside)
	if code, body := n.ask("GET", "/logs/", admin); code != 200 || !strings.Contains(body, "sub/") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := n.ask("GET", "/logs/sub/system.log", admin); code != 200 || body != "hello\n" {
		t.Errorf("%d %s", code, body)
	}
	for _, path := range []string{"/logs/../outside", "/logs/%2e%2e/outside", "/logs/..%2foutside"} {
		if code, body := n.ask("GET", path, admin); code == 200 || strings.Contains(body, "secret") {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	// What a pod that may write to the directory can put there.
	for name, target := range map[string]string{"link": outside, "up": "../outside", "tree": "/", "inside": filepath.Join(n.logs, "sub", "system.log")} {
		if err := os.Symlink(target, filepath.Join(n.logs, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(n.logs, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, body := n.ask("GET", "/logs/inside", admin); code != 200 || body != "hello\n" {
		t.Errorf("a link that stays inside: %d %s", code, body)
	}
	for _, path := range []string{"/logs/link", "/logs/up", "/logs/tree/etc/passwd", "/logs/fifo"} {
		if code, body := n.ask("GET", path, admin); code != 404 {
			t.Fatalf("%s: %d %s", path, code, body)
		}
	}
}
