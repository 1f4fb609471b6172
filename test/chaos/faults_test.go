//go:build linux

package chaos

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var faultRounds = flag.Int("fault-rounds", 2, "how many rounds the control loops and the scheduler are killed in")

// settleTimeout bounds the end of a round, after the last kill.
const settleTimeout = 90 * time.Second

// TestFaults kills controllers and schedulers in the middle of rollouts, Jobs and the deletion of namespaces, while a disruptor changes the
// same objects. In the end exactly the wanted objects exist; nothing was created twice on the way, and no pod was ever bound
// to a node where it must not be.
func TestFaults(t *testing.T) {
	f := newFaults(t, pickSeed(t))
	for range *faultRounds {
		if f.round(); f.number%20 == 0 {
			t.Logf("%d rounds after %v", f.number, time.Since(f.began).Round(time.Second))
		}
	}
	f.lastRound()
	f.summary()
}

type faults struct {
	t          *testing.T
	random     *rand.Rand
	api        kubernetes.Interface
	meta       metadata.Interface
	server     *server
	components *componentSet
	record     *eventLog
	judge      *checker

	number   int
	previous string          // the namespace of the round before, which is deleted in the next
	baseline map[string]bool // all there was before
	deeds    map[string]int
	began    time.Time

	rollouts, jobs, namespaces int
}

func newFaults(t *testing.T, random *rand.Rand) *faults {
	t.Helper()
	s := newServer(t, filepath.Join(t.TempDir(), "data"))
	s.flags = []string{"--controllers=-*", "--disable=scheduler", fmt.Sprint("--hollow-nodes=", allNodes)}
	s.start()
	s.ready()
	f := &faults{t: t, random: random, api: s.client(), server: s, deeds: map[string]int{}, began: time.Now()}
	f.judge = newChecker(func(format string, args ...any) { t.Errorf("round %d: "+format, append([]any{f.number}, args...)...) })
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	if f.meta, err = metadata.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	f.prepareNodes()
	f.namespace("chaos")
	_, err = f.api.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: urgentApp}, Value: 1000}, metav1.CreateOptions{})
	f.must(err)
	f.components = newComponentSet(t, s, random)
	f.eventually("the components are at work", func() string {
		if _, err := f.api.CoreV1().ServiceAccounts("chaos").Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	f.record = newEventLog(t, f.api, "chaos", elsewhere)
	f.eventually("nothing changes any more", func() string {
		before := f.everything()
		time.Sleep(300 * time.Millisecond)
		if f.baseline = f.everything(); !maps.Equal(before, f.baseline) {
			return "it does"
		}
		return ""
	})
	return f
}

// prepareNodes waits for the nodes and gives them different labels and taints.
func (f *faults) prepareNodes() {
	f.t.Helper()
	for i := range allNodes {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"zone-%d"}}}`, corev1.LabelTopologyZone, i%zones)
		switch {
		case i == allNodes-1:
			patch = `{"spec":{"unschedulable":true}}`
		case i >= openNodes:
			patch = fmt.Sprintf(`{"metadata":{"labels":{%q:"yes"}},"spec":{"taints":[{"key":%q,"effect":"NoSchedule"}]}}`, tightKey, tightKey)
		}
		f.eventually(nodeName(i), func() string {
			_, err := f.api.CoreV1().Nodes().Patch(f.t.Context(), nodeName(i), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			if err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

func (f *faults) namespace(name string) {
	f.t.Helper()
	_, err := f.api.CoreV1().Namespaces().Create(f.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	f.must(err)
}

func (f *faults) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatalf("round %d: %v", f.number, err)
	}
}

// eventually waits until nothing is missing.
func (f *faults) eventually(what string, missing func() string) {
	f.t.Helper()
	for deadline := time.Now().Add(settleTimeout); ; time.Sleep(20 * time.Millisecond) {
		if f.components != nil {
			f.components.reviveAll()
		}
		is := missing()
		if is == "" {
			return
		}
		if time.Now().After(deadline) {
			tails := f.server.tail()
			if f.components != nil {
				tails += "\n" + f.components.tails()
			}
			if f.record != nil {
				f.judge.replay(f.record.take()) // perhaps it knows why
			}
			f.t.Fatalf("round %d: not within %v: %s\n%s\n%s", f.number, settleTimeout, what, is, tails)
		}
	}
}

// round rolls a Deployment out, runs a Job, and deletes a Deployment and the namespace of the round before, with kills and a disruptor.
func (f *faults) round() {
	f.t.Helper()
	f.number++
	ns := fmt.Sprint("round-", f.number)
	how := styles[f.random.IntN(len(styles))]
	r := &round{faults: f, ns: ns, web: deployment(webApp, how, f.random), job: job(f.random)}
	f.namespace(ns)
	ctx := f.t.Context()
	apps := f.api.AppsV1().Deployments(ns)
	for _, d := range []*appsv1.Deployment{r.web, sideDeployment(f.random), tightDeployment()} {
		_, err := apps.Create(ctx, d, metav1.CreateOptions{})
		f.must(err)
	}
	_, err := f.api.BatchV1().Jobs(ns).Create(ctx, r.job, metav1.CreateOptions{})
	f.must(err)
	_, err = f.api.CoreV1().Services(ns).Create(ctx, service(), metav1.CreateOptions{})
	f.must(err)

	m := disrupt(f.t, f.api, rand.New(rand.NewPCG(f.random.Uint64(), 1)), ns, how == anyhow)
	r.meddler = m
	steps := []func(){r.rollOut, r.deleteSide, func() { f.deletePrevious() }}
	if f.random.IntN(2) == 0 {
		steps = append(steps, r.rollOut)
	}
	if f.random.IntN(2) == 0 {
		steps = append(steps, r.scale)
	}
	if f.random.IntN(2) == 0 {
		r.urgent = 1 + f.random.IntN(2)
		steps = append(steps, r.hurry)
	}
	for range 3 + f.random.IntN(3) {
		steps = append(steps, f.kill)
	}
	f.random.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	for _, step := range steps {
		f.record.awaitMore(1+f.random.IntN(60), time.Second)
		time.Sleep(time.Duration(f.random.IntN(3000)) * time.Microsecond)
		step()
	}
	f.record.awaitMore(1+f.random.IntN(100), time.Second)
	m.end()
	maps.Copy(f.judge.foreign, m.bound)
	for writeRecord, n := range m.deeds {
		f.deeds[writeRecord] += n
	}
	gone := f.previous
	f.eventually("the end of "+string(how), func() string { return strings.Join(append(r.missing(), f.left(gone, ns)...), "\n") })
	f.previous = ns
	f.judge.replay(f.record.take())
	r.counted()
	if f.t.Failed() {
		f.t.Fatalf("round %d, pods are %s\n%s", f.number, how, f.components.tails())
	}
}

// kill kills an instance of a component, mostly when there is a leader.
func (f *faults) kill() {
	f.t.Helper()
	if f.random.IntN(3) > 0 {
		f.components.awaitLeaders()
		f.record.awaitMore(1+f.random.IntN(60), time.Second)
		time.Sleep(time.Duration(f.random.IntN(3000)) * time.Microsecond)
	}
	f.components.kill()
}

// lastRound deletes the objects of the last round.
func (f *faults) lastRound() {
	f.t.Helper()
	f.deletePrevious()
	f.record.awaitMore(1+f.random.IntN(60), time.Second)
	f.kill()
	f.eventually("the end of everything", func() string { return strings.Join(f.left(f.previous, ""), "\n") })
	f.judge.replay(f.record.take())
}

func (f *faults) summary() {
	f.t.Helper()
	meddled := 0
	for _, n := range f.deeds {
		meddled += n
	}
	f.t.Logf("%d rounds in %v: %d kills, %d of them of leaders, and %d stops; %d gave up by themselves", f.number, time.Since(f.began).Round(time.Second), f.components.kills, f.components.ofLeaders, f.components.stops, f.components.gaveUp)
	f.t.Logf("%d rollouts, %d Jobs, %d namespaces deleted, %d times meddled with: %v", f.rollouts, f.jobs, f.namespaces, meddled, f.deeds)
	f.t.Logf("judged: %d changes, %d pods and %d ReplicaSets made, %d bindings, of which %d were right only by what could be known a moment before",
		f.record.counted(), f.judge.pods, f.judge.setsMade, f.judge.bindings, f.judge.late)
}

func (f *faults) deletePrevious() {
	f.t.Helper()
	if f.previous == "" {
		return
	}
	f.must(f.api.CoreV1().Namespaces().Delete(f.t.Context(), f.previous, metav1.DeleteOptions{}))
	f.namespaces++
}

// everything returns the names of all objects but Events.
func (f *faults) everything() map[string]bool {
	f.t.Helper()
	lists, err := f.api.Discovery().ServerPreferredResources()
	f.must(err)
	out := map[string]bool{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || resource.Kind == "Event" {
				continue
			}
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			f.must(err)
			objects, err := f.meta.Resource(gv.WithResource(resource.Name)).List(f.t.Context(), metav1.ListOptions{})
			if apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err) {
				continue
			}
			f.must(err)
			for _, o := range objects.Items {
				out[resource.Name+" "+o.Namespace+"/"+o.Name] = true
			}
		}
	}
	return out
}

// left returns the objects that should not exist: all but those of the baseline and of the present namespace, and Events in the deleted namespace.
func (f *faults) left(gone, present string) (out []string) {
	f.t.Helper()
	for name := range f.everything() {
		_, key, _ := strings.Cut(name, " ")
		namespace, _, _ := strings.Cut(key, "/")
		if !f.baseline[name] && (present == "" || namespace != present && name != "namespaces /"+present) && !(present != "" && ownedByRound(name)) {
			out = append(out, "left over: "+name)
		}
	}
	if gone == "" {
		return out
	}
	events, err := f.api.CoreV1().Events(gone).List(f.t.Context(), metav1.ListOptions{})
	f.must(err)
	if len(events.Items) > 0 {
		out = append(out, fmt.Sprintf("left over: %d events in %s", len(events.Items), gone))
	}
	return out
}

// ownedByRound reports whether an object is an IPAddress, which exists as long as a Service of the round does.
func ownedByRound(name string) bool { return strings.HasPrefix(name, "ipaddresses ") }

// round holds the wanted objects of one round.
type round struct {
	*faults
	ns      string
	web     *appsv1.Deployment
	job     *batchv1.Job
	meddler *disruptor

	templates int
	urgent    int // how many pods are to take the room of others
}

// hurry creates pods that preempt others.
func (r *round) hurry() {
	r.t.Helper()
	_, err := r.api.AppsV1().Deployments(r.ns).Create(r.t.Context(), urgentDeployment(int32(r.urgent)), metav1.CreateOptions{})
	r.must(err)
}

// rollOut changes the template, or rolls back to an earlier one.
func (r *round) rollOut() {
	r.t.Helper()
	r.rollouts++
	r.templates++
	image := r.templates
	if r.random.IntN(4) == 0 {
		image = r.random.IntN(r.templates)
	}
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"image:%d"}]}}}}`, image)
	_, err := r.api.AppsV1().Deployments(r.ns).Patch(r.t.Context(), webApp, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	r.must(err)
}

func (r *round) scale() {
	r.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, 1+r.random.IntN(int(*r.web.Spec.Replicas)))
	_, err := r.api.AppsV1().Deployments(r.ns).Patch(r.t.Context(), webApp, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	r.must(err)
}

// deleteSide deletes the side Deployment with all that it owns.
func (r *round) deleteSide() {
	r.t.Helper()
	how := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}[r.random.IntN(2)]
	r.must(r.api.AppsV1().Deployments(r.ns).Delete(r.t.Context(), sideApp, metav1.DeleteOptions{PropagationPolicy: &how}))
}

// missing returns what is not yet in its final state.
func (r *round) missing() (out []string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pods, err := r.api.CoreV1().Pods(r.ns).List(ctx, metav1.ListOptions{})
	r.must(err)
	byApp := map[string][]corev1.Pod{}
	for _, p := range pods.Items {
		byApp[p.Labels["app"]] = append(byApp[p.Labels["app"]], p)
	}
	out = append(out, r.missingWeb(ctx, byApp[webApp])...)
	out = append(out, r.missingTight(ctx, byApp[tightApp])...)
	out = append(out, r.missingUrgent(byApp[urgentApp])...)
	out = append(out, r.missingJob(ctx, byApp["job"])...)
	out = append(out, r.missingEndpoints(ctx, byApp[webApp])...)
	if n := len(byApp[sideApp]) + len(byApp["stray"]); n > 0 {
		out = append(out, fmt.Sprintf("%d pods that nobody wants", n))
	}
	sets, err := r.api.AppsV1().ReplicaSets(r.ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + sideApp})
	r.must(err)
	if len(sets.Items) > 0 {
		out = append(out, "a ReplicaSet of a Deployment that was deleted")
	}
	if _, err := r.api.CoreV1().ConfigMaps(r.ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{}); err != nil {
		out = append(out, err.Error())
	}
	if _, err := r.api.CoreV1().ServiceAccounts(r.ns).Get(ctx, "default", metav1.GetOptions{}); err != nil {
		out = append(out, err.Error())
	}
	return out
}

func (r *round) missingWeb(ctx context.Context, pods []corev1.Pod) (out []string) {
	r.t.Helper()
	d, err := r.api.AppsV1().Deployments(r.ns).Get(ctx, webApp, metav1.GetOptions{})
	r.must(err)
	want := *d.Spec.Replicas
	if s := d.Status; s.ObservedGeneration != d.Generation || s.Replicas != want || s.UpdatedReplicas != want || s.ReadyReplicas != want || s.AvailableReplicas != want || s.UnavailableReplicas != 0 {
		out = append(out, fmt.Sprintf("deployment web of generation %d at %s, paused: %v, %+v, is to have %d: %+v", d.Generation, d.ResourceVersion, d.Spec.Paused, d.Spec.Strategy.RollingUpdate, want, s))
	}
	sets, err := r.api.AppsV1().ReplicaSets(r.ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + webApp})
	r.must(err)
	image := d.Spec.Template.Spec.Containers[0].Image
	var current types.UID
	for _, set := range sets.Items {
		n := int32(0)
		if set.Spec.Template.Spec.Containers[0].Image == image {
			n, current = want, set.UID
		}
		if s := set.Status; *set.Spec.Replicas != n || s.Replicas != n || s.ReadyReplicas != n || s.ObservedGeneration != set.Generation {
			out = append(out, fmt.Sprintf("replicaset %s at %s, %v, is to have %d, not %d: %+v", set.Name, set.ResourceVersion, set.Annotations, n, *set.Spec.Replicas, s))
		}
	}
	if len(sets.Items) > r.templates+1 {
		out = append(out, fmt.Sprintf("%d ReplicaSets for %d templates", len(sets.Items), r.templates+1))
	}
	if len(pods) != int(want) {
		out = append(out, fmt.Sprintf("%d pods of %d", len(pods), want))
	}
	for _, p := range pods {
		owner := metav1.GetControllerOf(&p)
		if owner == nil || owner.UID != current || p.Spec.NodeName == "" || p.DeletionTimestamp != nil || !ready(&p) {
			out = append(out, fmt.Sprintf("pod %s of %v on %q is %s: %+v", p.Name, owner, p.Spec.NodeName, p.Status.Phase, p.Status.Conditions))
		}
	}
	return out
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

// missingTight is missing for the Deployment without enough room: as many pods run as fit, and the others are pending with a reason. That of the
// round before has its room until it is deleted.
func (r *round) missingTight(ctx context.Context, pods []corev1.Pod) (out []string) {
	r.t.Helper()
	d, err := r.api.AppsV1().Deployments(r.ns).Get(ctx, tightApp, metav1.GetOptions{})
	r.must(err)
	fit := tightNodes*tightFit - r.urgent
	running, waiting := 0, 0
	for _, p := range pods {
		if ready(&p) && p.DeletionTimestamp == nil {
			running++
		}
		if p.Spec.NodeName == "" && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason == corev1.PodReasonUnschedulable }) {
			waiting++
		}
	}
	if len(pods) != int(*d.Spec.Replicas) || running != fit || running+waiting != len(pods) || int(d.Status.AvailableReplicas) != fit ||
		int(d.Status.UnavailableReplicas) != len(pods)-fit {
		out = append(out, fmt.Sprintf("of %d pods of tight %d run and %d wait: %+v", len(pods), running, waiting, d.Status))
	}
	return out
}

func (r *round) missingUrgent(pods []corev1.Pod) (out []string) {
	if len(pods) != r.urgent {
		out = append(out, fmt.Sprintf("%d urgent pods of %d", len(pods), r.urgent))
	}
	for _, p := range pods {
		if !ready(&p) || p.DeletionTimestamp != nil {
			out = append(out, fmt.Sprintf("urgent pod %s on %q is not ready", p.Name, p.Spec.NodeName))
		}
	}
	return out
}

const tracked = "batch.kubernetes.io/job-tracking"

func (r *round) missingJob(ctx context.Context, pods []corev1.Pod) (out []string) {
	r.t.Helper()
	j, err := r.api.BatchV1().Jobs(r.ns).Get(ctx, r.job.Name, metav1.GetOptions{})
	r.must(err)
	want, end := *j.Spec.Completions, batchv1.JobComplete
	if fails(j) {
		want, end = 0, batchv1.JobFailed
	}
	succeeded, failed := 0, 0
	for _, p := range pods {
		switch p.Status.Phase {
		case corev1.PodSucceeded:
			succeeded++
		case corev1.PodFailed:
			failed++
		default:
			out = append(out, fmt.Sprintf("pod %s of the Job is %s", p.Name, p.Status.Phase))
		}
		if slices.Contains(p.Finalizers, tracked) {
			out = append(out, fmt.Sprintf("pod %s of the Job is still held", p.Name))
		}
	}
	s := j.Status
	ended := slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool { return c.Type == end && c.Status == corev1.ConditionTrue })
	counted := s.UncountedTerminatedPods == nil || len(s.UncountedTerminatedPods.Succeeded)+len(s.UncountedTerminatedPods.Failed) == 0
	if !ended || !counted || s.Active != 0 || s.Succeeded != want || succeeded != int(want) || fails(j) != (s.Failed > 0) || !fails(j) && failed > 0 {
		out = append(out, fmt.Sprintf("the Job, with %d and %d pods: %+v", succeeded, failed, s))
	}
	return out
}

func (r *round) missingEndpoints(ctx context.Context, pods []corev1.Pod) (out []string) {
	r.t.Helper()
	var want, sliced, listed []string
	for _, p := range pods {
		want = append(want, p.Status.PodIP)
	}
	found, err := r.api.DiscoveryV1().EndpointSlices(r.ns).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + webApp})
	r.must(err)
	for _, s := range found.Items {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				sliced = append(sliced, e.Addresses...)
			}
		}
	}
	endpoints, err := r.api.CoreV1().Endpoints(r.ns).Get(ctx, webApp, metav1.GetOptions{})
	if err != nil {
		return []string{err.Error()}
	}
	for _, s := range endpoints.Subsets {
		for _, a := range s.Addresses {
			listed = append(listed, a.IP)
		}
	}
	for kind, got := range map[string][]string{"endpoint slices": sliced, "endpoints": listed} {
		if !same(want, got) {
			out = append(out, fmt.Sprintf("%s are %v, pods %v", kind, got, want))
		}
	}
	return out
}

func same(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// counted checks that the Job created no pod too many.
func (r *round) counted() {
	r.t.Helper()
	r.jobs++
	if made := r.judge.made[r.ns+"/job"]; r.meddler.exact(r.job) && made != int(*r.job.Spec.Completions) {
		r.t.Errorf("the Job made %d pods for %d completions", made, *r.job.Spec.Completions)
	}
}
