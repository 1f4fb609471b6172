package pod

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"skiff/internal/catalog"
)

// usual returns an ordinary pod.
func usual() *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default",
			NodeName:           "n1",
			Volumes:            []corev1.Volume{{Name: "data"}, {Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}}}},
			Containers: []corev1.Container{{
				Name: "web", Image: "registry.example.com/web:v1",
				Env:           []corev1.EnvVar{{Name: "MODE", Value: "fast"}, {Name: "LEVEL", Value: "info"}},
				Ports:         []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
				VolumeMounts:  []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "conf", MountPath: "/conf"}},
				LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")},
					Limits:   corev1.ResourceList{"memory": resource.MustParse("128Mi")}},
			}},
			Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))}},
		},
	}
	defaultPod(p)
	return p
}

func TestGrace(t *testing.T) {
	ended, unbound, impatient := usual(), usual(), usual()
	ended.Status.Phase = corev1.PodSucceeded
	unbound.Spec.NodeName = ""
	impatient.Spec.TerminationGracePeriodSeconds = new(int64(-1))
	for name, test := range map[string]struct {
		pod   *corev1.Pod
		asked *int64
		want  int64
	}{
		"as the spec says":         {usual(), nil, 30},
		"as asked":                 {usual(), new(int64(5)), 5},
		"at once":                  {usual(), new(int64(0)), 0},
		"negative counts as one":   {usual(), new(int64(-5)), 1},
		"negative in the spec too": {impatient, nil, 1},
		"ended":                    {ended, new(int64(5)), 0},
		"runs nowhere":             {unbound, nil, 0},
	} {
		if got := grace(test.pod, test.asked); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestColumnsOfTime(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	p := usual()
	p.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	p.Status.Phase = corev1.PodRunning
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "side", RestartCount: 1, Started: new(true), Ready: true,
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-time.Hour))}}}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", RestartCount: 2, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-5 * time.Minute))}}}}
	expectCells(t, p, now, "2/2", "Running", "3 (5m ago)")

	p.DeletionTimestamp = &metav1.Time{Time: now}
	expectCells(t, p, now, "2/2", "Terminating", "3 (5m ago)")
	p.Status.Reason = "NodeLost"
	expectCells(t, p, now, "2/2", "Unknown", "3 (5m ago)")
	p.Status.Phase, p.Status.Reason = corev1.PodFailed, ""
	expectCells(t, p, now, "2/2", "Failed", "3 (5m ago)")
	if got := rowConditions(p); len(got) != 1 || got[0].Reason != "Failed" || got[0].Message != "The pod failed." {
		t.Errorf("conditions of the row: %v", got)
	}
	p.Status.Phase = corev1.PodSucceeded
	if got := rowConditions(p); len(got) != 1 || got[0].Message != "The pod has completed successfully." {
		t.Errorf("conditions of the row: %v", got)
	}
	if got := rowConditions(usual()); got != nil {
		t.Errorf("conditions of the row: %v", got)
	}
}

func expectCells(t *testing.T, p *corev1.Pod, now time.Time, want ...string) {
	t.Helper()
	var got []string
	for _, c := range columns[1:4] {
		got = append(got, c.Cell(p, now).(string))
	}
	if !slices.Equal(got, want) {
		t.Errorf("cells %q, want %q", got, want)
	}
}

func TestFields(t *testing.T) {
	p := usual()
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", NominatedNodeName: "n2"}
	defaultPod(p)
	want := map[string]string{"spec.nodeName": "n1", "spec.host": "n1", "spec.restartPolicy": "Always", "spec.schedulerName": "default-scheduler",
		"spec.serviceAccountName": "default", "spec.hostNetwork": "false", "status.phase": "Running", "status.podIP": "10.0.0.1",
		"status.podIPs": "", "status.nominatedNodeName": "n2"}
	for _, f := range Pod.Fields {
		if got, listed := f.Value(p), want[f.Name]; got != listed {
			t.Errorf("%s is %q, want %q", f.Name, got, listed)
		}
		delete(want, f.Name)
	}
	if len(want) > 0 {
		t.Errorf("no fields %v", want)
	}
}

// An update may keep what older versions accepted.
func TestUpdatesKeepWhatWasLetIn(t *testing.T) {
	withSysctl := func(p *corev1.Pod) {
		p.Spec.HostNetwork = true
		useHostPorts(p.Spec.Containers[0].Ports)
		p.Spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.tcp_syncookies", Value: "1"}}
	}
	for name, breakIt := range map[string]func(*corev1.Pod){
		"sysctls of the host": withSysctl,
		"partial huge pages": func(p *corev1.Pod) {
			r := &p.Spec.Containers[0].Resources
			r.Limits["hugepages-2Mi"], r.Requests["hugepages-2Mi"] = resource.MustParse("3Mi"), resource.MustParse("3Mi")
		},
		"label values in affinity": func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: "a", LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "In", Values: []string{"a b"}}}}}}}}
		},
		"label values in node affinity": func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: "In", Values: []string{"a b"}}}}}}}}
		},
		"selectors of spread constraints": func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "a", WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "a b"}}}}
		},
		"restarting init containers": func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "x", ResizePolicy: []corev1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: corev1.RestartContainer}}}}
			defaultPod(p)
		},
		"user namespace with the host's network": func(p *corev1.Pod) {
			p.Spec.HostUsers, p.Spec.HostNetwork = new(false), true
			useHostPorts(p.Spec.Containers[0].Ports)
		},
		"comparing tolerations": func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "a", Operator: corev1.TolerationOpLt, Value: "5"})
		},
		"a cost that is no number": func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: "much"} },
		"CAP_SYS_ADMIN": func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"CAP_SYS_ADMIN"}}}
		},
	} {
		old := usual()
		breakIt(old)
		if errs := validate(old); len(errs) == 0 {
			t.Errorf("%s: let in", name)
		}
		if errs := validateUpdate(old.DeepCopy(), old); len(errs) > 0 {
			t.Errorf("%s: not kept: %v", name, errs)
		}
		if errs := validateUpdate(old, usual()); len(errs) == 0 {
			t.Errorf("%s: let in by an update", name)
		}
	}
}

func TestPrepareIsPure(t *testing.T) {
	old := usual()
	before := old.DeepCopy()
	for name, prepare := range map[string]func(new, old *corev1.Pod){
		"ephemeral containers": prepareEphemeralContainers, "resize": prepareResize, "status": prepareStatus, "main": prepareUpdate,
	} {
		changed := old.DeepCopy()
		changed.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("2")
		changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}}
		prepare(changed, old)
		if catalog.SpecChanged(old, before) {
			t.Errorf("%s: the old pod changed", name)
		}
	}
}

func TestUsualPodIsFine(t *testing.T) {
	if errs := validate(usual()); len(errs) > 0 {
		t.Error(errs)
	}
	if w := warnings(usual(), nil); len(w) > 0 {
		t.Error(w)
	}
	twice := usual()
	defaultPod(twice)
	if catalog.SpecChanged(twice, usual()) {
		t.Error("defaults are not idempotent")
	}
}

func TestLongNames(t *testing.T) {
	for name, msg := range map[string]string{
		strings.Repeat("d", 256) + `\u`: "'s Domain length must be under 256 characters",
		`D\` + strings.Repeat("u", 105): "'s User length must not be longer than 104 characters",
	} {
		if !slices.Contains(userNameErrors(name), msg) {
			t.Errorf("%.10s…: %q, want %q", name, userNameErrors(name), msg)
		}
	}
}

// The server that stories are recorded from allows no privileged containers; skiff does.
func TestPrivileged(t *testing.T) {
	on, off := new(true), new(false)
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"privileged": {func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: on} }, ""},
		"and not": {func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: on, AllowPrivilegeEscalation: off}
		}, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"},
		"two minds": {func(p *corev1.Pod) {
			p.Spec.HostNetwork = true
			useHostPorts(p.Spec.Containers[0].Ports)
			p.Spec.SecurityContext.WindowsOptions = &corev1.WindowsSecurityContextOptions{HostProcess: on}
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: off}}
		}, "spec.containers[0].securityContext.windowsOptions.hostProcess: Invalid value: false: pod hostProcess value must be identical if both are specified, was true"},
		"some on the host": {func(p *corev1.Pod) {
			other := p.Spec.Containers[0].DeepCopy()
			other.Name = "other"
			other.SecurityContext = &corev1.SecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: on}}
			p.Spec.Containers = append(p.Spec.Containers, *other)
		}, `[spec: Invalid value: "": If pod contains any hostProcess containers then all containers must be HostProcess containers, ` +
			`spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers]`},
	} {
		p := usual()
		test.change(p)
		got := ""
		if errs := validate(p); len(errs) > 0 {
			got = errs.ToAggregate().Error()
		}
		if !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func BenchmarkDefault(b *testing.B) {
	p := usual()
	b.ReportAllocs()
	for b.Loop() {
		p.Spec.Containers[0].ImagePullPolicy = ""
		defaultPod(p)
	}
}

func BenchmarkValidate(b *testing.B) {
	p := usual()
	b.ReportAllocs()
	for b.Loop() {
		if errs := validate(p); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}

func BenchmarkValidateUpdate(b *testing.B) {
	old, p := usual(), usual()
	p.Labels["a"] = "b"
	b.ReportAllocs()
	for b.Loop() {
		if errs := validateUpdate(p, old); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}

func BenchmarkWarnings(b *testing.B) {
	p := usual()
	b.ReportAllocs()
	for b.Loop() {
		warnings(p, nil)
	}
}
