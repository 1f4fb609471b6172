package kubelettest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"skiff/internal/kubelet/cri"
)

var update = flag.Bool("update", false, "write what is decided into the stories")

// Epoch is when stories begin.
var Epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// Story is a pod, and what the runtime knows of it.
//
//	# A container that ended is started again.
//	pod web
//	  spec: {containers: [{name: nginx, image: nginx}]}
//	sandbox 0 ready
//	container nginx exited code=1 restarts=0 at=5s
//	now 10s
//	----
//	start nginx
//
// Sandboxes have an attempt, containers are in the newest unless they say in=ATTEMPT. Their times are those of their end, or start if they run.
// Lines that are not known here are in Other.
type Story struct {
	Title   string
	Pod     *corev1.Pod
	Runtime *cri.Pod
	Now     time.Time
	Other   [][]string // other lines, split into words
}

// RunStories runs decide for all stories in testdata, and compares its output with what is below the line. With -update the output is written there.
func RunStories(t *testing.T, decide func(*Story) (string, error)) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runFile(t, file, decide) })
	}
}

func runFile(t *testing.T, file string, decide func(*Story) (string, error)) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var output []string
	for _, text := range strings.Split(strings.TrimSpace(string(data)), "\n\n") {
		above, want, _ := strings.Cut(text, "\n----\n")
		above = strings.TrimSuffix(above, "\n----")
		if !strings.Contains("\n"+above, "\npod ") { // a remark
			output = append(output, text)
			continue
		}
		s, err := parse(above)
		if err != nil {
			t.Fatalf("%s:\n%s\n%v", file, above, err)
		}
		got, err := decide(s)
		if err != nil {
			t.Fatalf("%s:\n%s\n%v", file, above, err)
		}
		got = strings.TrimRight(got, "\n")
		if got != strings.TrimRight(want, "\n") && !*update {
			t.Errorf("%s: %s\ngot:\n%s\nwant:\n%s", file, s.Title, got, want)
		}
		output = append(output, above+"\n----\n"+got)
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(output, "\n\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func parse(text string) (*Story, error) {
	s := &Story{Runtime: &cri.Pod{UID: "u"}, Now: Epoch.Add(time.Minute)}
	s.Title, _, _ = strings.Cut(text, "\n")
	var body []string
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case strings.HasPrefix(line, "#") || line == "":
			continue
		case strings.HasPrefix(line, " "):
			body = append(body, line)
			continue
		}
		if err := s.line(strings.Fields(line)); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
	}
	if err := yaml.UnmarshalStrict([]byte(strings.Join(body, "\n")), s.Pod); err != nil {
		return nil, err
	}
	if s.Pod.Spec.RestartPolicy == "" {
		s.Pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	return s, nil
}

func (s *Story) line(words []string) error {
	switch words[0] {
	case "pod":
		s.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: words[1], Namespace: "default", UID: "u", Generation: 1}}
	case "now":
		d, err := time.ParseDuration(words[1])
		s.Now = Epoch.Add(d)
		return err
	case "sandbox":
		return s.sandbox(words[1:])
	case "container":
		return s.container(words[1:])
	default:
		s.Other = append(s.Other, words)
	}
	return nil
}

func (s *Story) sandbox(words []string) error {
	attempt, err := strconv.ParseUint(words[0], 10, 32)
	if err != nil {
		return err
	}
	box := &runtimeapi.PodSandboxStatus{Id: "sandbox-" + words[0], Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u", Attempt: uint32(attempt)},
		State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, Network: &runtimeapi.PodSandboxNetworkStatus{}}
	for _, w := range words[1:] {
		switch w {
		case "ready":
			box.State, box.Network.Ip = runtimeapi.PodSandboxState_SANDBOX_READY, "10.42.0.2"
		case "no-ip":
			box.Network.Ip = ""
		case "host":
			box.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}}
		case "dead":
		default:
			return fmt.Errorf("a sandbox is not %q", w)
		}
	}
	s.Runtime.Sandboxes = append([]*runtimeapi.PodSandboxStatus{box}, s.Runtime.Sandboxes...)
	return nil
}

func (s *Story) container(words []string) error {
	c := &cri.Container{Name: words[0], State: cri.State(words[1]), Image: "nginx", ImageRef: "sha256:nginx", CreatedAt: Epoch.Add(time.Duration(len(s.Runtime.Containers)) * time.Second)}
	if len(s.Runtime.Sandboxes) > 0 {
		c.Sandbox = s.Runtime.Sandboxes[0].Id
	}
	at := Epoch.Add(time.Second)
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		var err error
		switch key {
		case "code", "restarts":
			var n int64
			n, err = strconv.ParseInt(value, 10, 32)
			if key == "code" {
				c.ExitCode = int32(n)
			} else {
				c.RestartCount = int32(n)
			}
		case "at":
			var d time.Duration
			d, err = time.ParseDuration(value)
			at = Epoch.Add(d)
		case "in":
			c.Sandbox = "sandbox-" + value
		case "reason":
			c.Reason = value
		case "image":
			c.Image = value
		default:
			err = fmt.Errorf("a container has no %q", key)
		}
		if err != nil {
			return err
		}
	}
	c.ID = fmt.Sprintf("%s-%d", c.Name, c.RestartCount)
	c.Hash = cri.Hash(&corev1.Container{Name: c.Name, Image: c.Image})
	switch c.State {
	case cri.Running, cri.Unknown:
		c.StartedAt = at
	case cri.Exited:
		c.StartedAt, c.FinishedAt = at.Add(-time.Second), at
	case cri.Created:
	default:
		return fmt.Errorf("a container is not %q", c.State)
	}
	s.Runtime.Containers = append([]*cri.Container{c}, s.Runtime.Containers...)
	return nil
}
