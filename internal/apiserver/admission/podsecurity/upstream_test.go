package podsecurity_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	upstream "k8s.io/pod-security-admission/admission"
	upstreamload "k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/api"
	upstreammetrics "k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/podsecurity"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
	"skiff/test/seed"
)

// fixture is one pod of the test data of k8s.io/pod-security-admission.
type fixture struct {
	path           string // below testdata, such as restricted/v1.37/fail/apparmorprofile0.yaml
	level, version string
	pass           bool
	pod            *corev1.Pod
}

// fixtures reads the library's test data out of the module cache.
func fixtures(t *testing.T) []fixture {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatalf("finding the module: %v", err)
	}
	root := filepath.Join(strings.TrimSpace(string(out)), "test", "testdata")
	paths, err := filepath.Glob(filepath.Join(root, "*", "*", "*", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	info := admissiontest.Info(&corev1.Pod{})
	var list []fixture
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		path, err = filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(filepath.ToSlash(path), "/")
		pod := admissiontest.Parse(t, &corev1.Pod{}, string(text))
		info.Default(pod) // a volume of no kind is an emptyDir
		list = append(list, fixture{path, parts[0], parts[1], parts[2] == "pass", pod})
	}
	if len(list) < 4000 {
		t.Fatalf("%s has %d pods", root, len(list))
	}
	return list
}

func newPlugin(t *testing.T, store *objectstest.Store, config string) admission.Plugin {
	t.Helper()
	parsed, err := podsecurity.ParseConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return podsecurity.New(store, parsed, nil)
}

// outcome is the refusal and the warnings of a write.
type outcome struct {
	err      string
	code     int32
	warnings []string
}

func through(t *testing.T, p admission.Plugin, a *admission.Attributes) (o outcome) {
	t.Helper()
	a.Warn = func(text string) { o.warnings = append(o.warnings, text) }
	err := admissiontest.Through(t, p, a)
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		o.err, o.code = status.Status().Message, status.Status().Code
	} else if err != nil {
		o.err = err.Error()
	}
	return o
}

// TestFixtures checks every pod of the library's test data, as a pod and as the template of a Deployment, for the outcome it was made for.
func TestFixtures(t *testing.T) {
	store := objectstest.New()
	plugin := newPlugin(t, store, "")
	failed, passed := 0, 0
	for _, f := range fixtures(t) {
		name := f.level + "-" + strings.ReplaceAll(f.version, ".", "-")
		store.Put(corev1.Resource("namespaces"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			api.EnforceLevelLabel: f.level, api.EnforceVersionLabel: f.version}}})
		f.pod.Namespace = name
		got := through(t, plugin, admissiontest.Create(f.pod))
		if f.pass && (got.err != "" || len(got.warnings) > 0) {
			t.Errorf("%s: refused with %q, warned with %q", f.path, got.err, got.warnings)
		}
		if want := `is forbidden: violates PodSecurity "` + f.level + ":" + f.version + `": `; !f.pass && (got.code != 403 || !strings.Contains(got.err, want)) {
			t.Errorf("%s: answered %d %q, want a refusal that says %s", f.path, got.code, got.err, want)
		}
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "d"}, Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{ObjectMeta: f.pod.ObjectMeta, Spec: f.pod.Spec}}}
		got = through(t, plugin, admissiontest.Create(deployment))
		if got.err != "" || (len(got.warnings) == 0) != f.pass {
			t.Errorf("%s in a deployment: refused with %q, warned with %q", f.path, got.err, got.warnings)
		}
		if f.pass {
			passed++
		} else {
			failed++
		}
	}
	t.Logf("%d pods that pass, %d that fail", passed, failed)
	if failed == 0 || passed == 0 {
		t.Error("nothing was shown")
	}
}

// upstreamPlugin is upstream's PodSecurity admission.
type upstreamPlugin struct {
	t         *testing.T
	admission *upstream.Admission
	store     *objectstest.Store
}

// GetNamespace implements upstream.NamespaceGetter.
func (u *upstreamPlugin) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	obj, err := u.store.Fresh(ctx, corev1.Resource("namespaces"), "", name)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Namespace), nil
}

// ListPods implements upstream.PodLister.
func (u *upstreamPlugin) ListPods(_ context.Context, namespace string) (list []*corev1.Pod, _ error) {
	for _, obj := range u.store.List(corev1.Resource("pods"), namespace) {
		list = append(list, obj.(*corev1.Pod))
	}
	return list, nil
}

type noMetrics struct{}

func (noMetrics) RecordEvaluation(upstreammetrics.Decision, api.LevelVersion, upstreammetrics.Mode, api.Attributes) {
}
func (noMetrics) RecordExemption(api.Attributes)   {}
func (noMetrics) RecordError(bool, api.Attributes) {}

func newUpstreamPlugin(t *testing.T, store *objectstest.Store, config string) *upstreamPlugin {
	t.Helper()
	configuration, err := upstreamload.LoadFromData([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	u := &upstreamPlugin{t: t, store: store}
	u.admission = &upstream.Admission{Configuration: configuration, Evaluator: evaluator, Metrics: noMetrics{}, NamespaceGetter: u, PodLister: u}
	if err := errors.Join(u.admission.CompleteConfiguration(), u.admission.ValidateConfiguration()); err != nil {
		t.Fatal(err)
	}
	return u
}

func (u *upstreamPlugin) through(a *admission.Attributes) (o outcome) {
	record := &api.AttributesRecord{Name: a.Subject(), Namespace: a.Namespace, Kind: a.Info.GVK, Resource: a.Info.GVR, Subresource: a.Subresource,
		Operation: admissionv1.Operation(a.Operation), Object: a.Object, OldObject: a.Old, Username: a.User.Username}
	if a.Is(corev1.Resource("namespaces")) {
		record.Namespace = a.Object.GetName() // upstream's servers say so
	}
	response := u.admission.Validate(klog.NewContext(u.t.Context(), klog.Logger{}), record)
	if o.warnings = response.Warnings; !response.Allowed {
		o.err, o.code = response.Result.Message, response.Result.Code
	}
	return o
}

const exemptions = `
apiVersion: pod-security.admission.config.k8s.io/v1
kind: PodSecurityConfiguration
defaults: {enforce: baseline, enforce-version: v1.30, warn: restricted, warn-version: latest, audit: restricted}
exemptions: {usernames: [exempt-user], namespaces: [exempt], runtimeClasses: [exempt-class]}
`

// TestLikeUpstream checks that random writes have the same refusals and warnings as with upstream's admission.
func TestLikeUpstream(t *testing.T) {
	seed := seed.New(t)
	all := fixtures(t)
	for name, config := range map[string]string{"defaults": "", "exemptions": exemptions} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, uint64(len(config))))
			store := objectstest.New()
			ours, upstreamPlugin := newPlugin(t, store, config), newUpstreamPlugin(t, store, config)
			var refused, warned int
			for range 20_000 {
				write := randomWrite(random, store, all)
				got, want := through(t, ours, write), upstreamPlugin.through(write)
				if got.err != want.err || got.code != want.code || !slices.Equal(got.warnings, want.warnings) {
					t.Fatalf("%s %s/%s %v\nour answer is  %+v\nupstream's is  %+v", write.Operation, write.Info.GVR.Resource, write.Subresource, write.Object, got, want)
				}
				if got.err != "" {
					refused++
				}
				if len(got.warnings) > 0 {
					warned++
				}
			}
			t.Logf("%d refused, %d warned", refused, warned)
			if refused < 1000 || warned < 1000 {
				t.Error("too little was shown")
			}
		})
	}
}

func pick[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }

func randomLabels(random *rand.Rand) map[string]string {
	labels := map[string]string{}
	for _, label := range []string{api.EnforceLevelLabel, api.AuditLevelLabel, api.WarnLevelLabel} {
		if random.IntN(2) == 0 {
			labels[label] = pick(random, "privileged", "baseline", "baseline", "restricted", "restricted", "restricted", "nonsense")
		}
	}
	for _, label := range []string{api.EnforceVersionLabel, api.AuditVersionLabel, api.WarnVersionLabel} {
		if random.IntN(3) == 0 {
			labels[label] = pick(random, "latest", "latest", "v1.0", "v1.8", "v1.22", "v1.25", "v1.34", "v1.37", "v1.99", "v2.0")
		}
	}
	return labels
}

// randomWrite returns a write to a namespace with random labels and random pods in it.
func randomWrite(random *rand.Rand, store *objectstest.Store, all []fixture) *admission.Attributes {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pick(random, "one", "two", "three", "exempt"), Labels: randomLabels(random)}}
	if random.IntN(5) == 0 {
		return namespaceWrite(random, store, namespace)
	}
	if random.IntN(3) == 0 {
		store.Put(corev1.Resource("namespaces"), namespace)
	}
	pod := all[random.IntN(len(all))].pod.DeepCopy()
	pod.Namespace = namespace.Name
	if random.IntN(10) == 0 {
		pod.Spec.RuntimeClassName = ptr.To(pick(random, "exempt-class", "other"))
	}
	if random.IntN(3) == 0 {
		pod.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(pick(random, "1", "2")), Controller: ptr.To(true)}}
	}
	if random.IntN(4) == 0 && len(store.List(corev1.Resource("pods"), namespace.Name)) < 20 {
		store.Put(corev1.Resource("pods"), pod)
	}
	write := admissiontest.Create(podOrWorkload(random, pod))
	if random.IntN(2) == 0 {
		old := write.Object.DeepCopyObject().(catalog.Object)
		if pod, ok := write.Object.(*corev1.Pod); ok {
			changePod(random, pod)
		}
		write = admissiontest.Update(write.Object, old)
	}
	if random.IntN(3) == 0 {
		write.Subresource = pick(random, "status", "ephemeralcontainers", "resize", "binding", "scale")
	}
	if random.IntN(10) == 0 {
		user := *write.User
		user.Username = "exempt-user"
		write.User = &user
	}
	if random.IntN(50) == 0 {
		write.Namespace = "nowhere"
	}
	return write
}

func namespaceWrite(random *rand.Rand, store *objectstest.Store, namespace *corev1.Namespace) *admission.Attributes {
	write := admissiontest.Create(namespace)
	if random.IntN(4) > 0 {
		old := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name, Labels: randomLabels(random)}}
		if random.IntN(4) == 0 {
			old.Labels = namespace.Labels
		}
		write = admissiontest.Update(namespace, old)
	}
	if random.IntN(10) == 0 {
		write.Subresource = pick(random, "status", "finalize")
	}
	return write
}

func changePod(random *rand.Rand, pod *corev1.Pod) {
	switch random.IntN(5) {
	case 0:
		pod.Spec.Containers[0].Image += ":new"
	case 1:
		pod.Labels = map[string]string{"a": "b"}
	case 2:
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}})
	case 3:
		pod.Spec.InitContainers = nil
	}
}

func podOrWorkload(random *rand.Rand, pod *corev1.Pod) catalog.Object {
	template := corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	meta := metav1.ObjectMeta{Namespace: pod.Namespace, Name: "w"}
	switch random.IntN(20) {
	case 0:
		return &corev1.PodTemplate{ObjectMeta: meta, Template: template}
	case 1:
		return &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Template: pick(random, &template, nil)}}
	case 2:
		return &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Template: template}}
	case 3:
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: template}}
	case 4:
		return &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Template: template}}
	case 5:
		return &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: template}}
	case 6:
		return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: template}}
	case 7:
		return &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}}}
	default:
		return pod
	}
}
