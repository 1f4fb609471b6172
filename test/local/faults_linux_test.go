package local

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"skiff/internal/cluster/local"
	"skiff/test/seed"
)

var faultRounds = flag.Int("fault-rounds", 2, "in how many rounds nodes and what runs on them are killed, paused and cut off")

// TestFaults kills, pauses, stops and cuts off nodes and what runs on them, while all of them ask a Service. Connections outlive a restart of the proxy,
// pods of a node that is lost are replaced elsewhere, a node that is back is as the others, and nothing is left of what there was meanwhile.
func TestFaults(t *testing.T) {
	f := &faults{cluster: newCluster(t, "storm"), t: t, random: rand.New(rand.NewPCG(seed.New(t), 1))}
	f.load(t, "testserver")
	f.up(t, "--nodes", "3", "--name", f.name, "--node-monitor-grace-period", "16s", "--node-monitor-period", "1s")
	for i := range 3 {
		f.nodes = append(f.nodes, fmt.Sprintf("storm-%d", i+1))
	}
	f.serve()
	f.settle()
	f.before = f.kernel()
	t.Logf("at first:\n%s", strings.Join(f.before, "\n"))
	for i := range *faultRounds {
		began := time.Now()
		what := f.round()
		f.settle()
		if now := f.kernel(); !slices.Equal(now, f.before) {
			t.Errorf("round %d, %s: what nodes have is not what they had\nnow  %s\nthen %s", i+1, what, strings.Join(now, "\n     "), strings.Join(f.before, "\n     "))
		}
		t.Logf("round %d: %s, %.1f s", i+1, what, time.Since(began).Seconds())
		if t.Failed() {
			t.FailNow()
		}
	}
	f.skiff(t, "down", "--purge")
}

type faults struct {
	*cluster
	t      *testing.T
	random *rand.Rand
	nodes  []string
	ip     string   // of the Service
	before []string // what nodes have when all is well
}

// serve runs web servers and their Service. Pods of a node that is lost are not waited for long.
func (f *faults) serve() {
	f.t.Helper()
	labels, grace, soon := map[string]string{"app": "web"}, int64(0), int64(1)
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{Name: "web", Image: "skiff.internal/testserver", ImagePullPolicy: corev1.PullIfNotPresent,
			ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}}}},
	}}
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		template.Spec.Tolerations = append(template.Spec.Tolerations, corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &soon})
	}
	replicas := int32(6)
	if _, err := f.api.AppsV1().Deployments("default").Create(f.t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	service, err := f.api.CoreV1().Services("default").Create(f.t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}}}, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.ip = service.Spec.ClusterIP
}

// round does something bad, and undoes it.
func (f *faults) round() string {
	f.t.Helper()
	node := f.nodes[f.random.IntN(3)]
	agent := f.nodes[1+f.random.IntN(2)]
	long := f.random.IntN(3) == 0 // so long that it is noticed
	switch f.random.IntN(5) {
	case 0:
		f.surviving(func() {
			f.signal(node, syscall.SIGKILL)
			f.cluster.up(f.t)
		})
		return "skiff of " + node + " killed"
	case 1:
		pause := time.Duration(200+f.random.IntN(3000)) * time.Millisecond
		f.surviving(func() {
			f.signal(node, syscall.SIGSTOP)
			time.Sleep(pause)
			f.signal(node, syscall.SIGCONT)
		})
		return fmt.Sprintf("skiff of %s paused for %v", node, pause)
	case 2:
		f.skiff(f.t, "node", "stop", agent)
		f.meanwhile(agent, long)
		f.skiff(f.t, "node", "start", agent)
		return fmt.Sprintf("%s off and on, long: %v", agent, long)
	case 3:
		f.skiff(f.t, "node", "partition", agent)
		f.meanwhile(agent, long)
		f.skiff(f.t, "node", "heal", agent)
		return fmt.Sprintf("%s cut off, long: %v", agent, long)
	default:
		f.inside(f.t, node, "ip", "link", "delete", "skiff.vx")
		return "the overlay's link of " + node + " removed"
	}
}

// meanwhile waits a moment, or until the loss of a node has been noticed: then its pods are replaced on others, and those ask the Service with success.
func (f *faults) meanwhile(lost string, long bool) {
	f.t.Helper()
	if !long {
		time.Sleep(time.Duration(f.random.IntN(2000)) * time.Millisecond)
		return
	}
	f.ready(f.t, lost, false)
	eventually(f.t, "pods of "+lost+" are replaced", func() error { return f.available(lost) })
	for _, node := range f.nodes {
		if node != lost {
			eventually(f.t, "the Service answers "+node, func() error { return f.ask(node, net.JoinHostPort(f.ip, "80"), 20) })
		}
	}
}

// signal sends a signal to a node's skiff.
func (f *faults) signal(node string, s syscall.Signal) {
	f.t.Helper()
	pid := f.states(f.t)[node].PID
	if pid == 0 {
		f.t.Fatalf("skiff does not run on %s", node)
	}
	if err := syscall.Kill(pid, s); err != nil {
		f.t.Fatal(err)
	}
	if s == syscall.SIGKILL {
		eventually(f.t, "skiff is dead", func() error {
			if syscall.Kill(pid, 0) == nil {
				return errors.New("it is not")
			}
			return nil
		})
	}
}

// surviving does something that no connection may notice.
func (f *faults) surviving(do func()) {
	f.t.Helper()
	type held struct {
		node string
		conn net.Conn
		read *bufio.Reader
	}
	var all []held
	for _, node := range f.nodes {
		conn, err := f.dial(node, net.JoinHostPort(f.ip, "80"))
		if err != nil {
			f.t.Fatal(err)
		}
		defer conn.Close()
		all = append(all, held{node, conn, bufio.NewReader(conn)})
	}
	names := map[string]string{}
	for _, h := range all {
		name, err := question(h.conn, h.read)
		if err != nil {
			f.t.Fatal(err)
		}
		names[h.node] = name
	}
	do()
	for _, h := range all {
		name, err := question(h.conn, h.read)
		if err != nil || name != names[h.node] {
			f.t.Errorf("a connection from %s to %s did not outlive it: %q, %v", h.node, names[h.node], name, err)
		}
	}
}

func (f *faults) dial(node, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), 3*time.Second)
	defer cancel()
	return local.Dial(ctx, f.dir, node, "tcp", address)
}

// question asks a web server for its name, on a connection that is kept.
func question(conn net.Conn, read *bufio.Reader) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprint(conn, "GET /hostname HTTP/1.1\r\nHost: web\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := http.ReadResponse(read, nil)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	return strings.TrimSpace(string(body)), err
}

// ask asks at an address from a node, so many times, each on a connection of its own. Every one must be answered.
func (f *faults) ask(node, address string, times int) error {
	for range times {
		conn, err := f.dial(node, address)
		if err != nil {
			return err
		}
		_, err = question(conn, bufio.NewReader(conn))
		conn.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// available reports whether all web servers are ready, none of them on a node that is lost.
func (f *faults) available(lost string) error {
	pods, err := f.api.CoreV1().Pods("default").List(f.t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		return err
	}
	n := 0
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Spec.NodeName != lost && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			n++
		}
	}
	if n != 6 {
		return fmt.Errorf("%d of 6 are ready", n)
	}
	return nil
}

// settle waits until everything is as it should be: nodes and pods are ready and no others are there, every node reaches every pod, the Service at its
// address and at each node's port, and its name server knows it.
func (f *faults) settle() {
	f.t.Helper()
	for _, node := range f.nodes {
		f.ready(f.t, node, true)
	}
	eventually(f.t, "all web servers are ready, and no others there", func() error {
		if err := f.available(""); err != nil {
			return err
		}
		return f.each(func(corev1.Pod) error { return nil })
	})
	service, err := f.api.CoreV1().Services("default").Get(f.t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	states := f.states(f.t)
	targets := []string{net.JoinHostPort(f.ip, "80")}
	for _, node := range f.nodes {
		targets = append(targets, fmt.Sprintf("%s:%d", states[node].Address, service.Spec.Ports[0].NodePort))
	}
	for _, node := range f.nodes {
		for _, target := range targets {
			eventually(f.t, target+" answers "+node, func() error { return f.ask(node, target, 3) })
		}
		eventually(f.t, "every pod answers "+node, func() error {
			// Where they are now: of a node that was off for a moment the server knows the pods it had before until the node says more.
			return f.each(func(p corev1.Pod) error { return f.ask(node, net.JoinHostPort(p.Status.PodIP, "8080"), 3) })
		})
		eventually(f.t, node+" resolves the Service's name", func() error { return f.resolve(node) })
	}
}

// each asks something of each web server, of which there are six and nothing else.
func (f *faults) each(ask func(corev1.Pod) error) error {
	pods, err := f.api.CoreV1().Pods("default").List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(pods.Items) != 6 {
		return fmt.Errorf("there are %d pods", len(pods.Items))
	}
	for _, p := range pods.Items {
		if err := ask(p); err != nil {
			return fmt.Errorf("%s on %s: %w", p.Name, p.Spec.NodeName, err)
		}
	}
	return nil
}

// resolve asks for the Service's name as a program on a node does that takes the cluster's name server.
func (f *faults) resolve(node string) error {
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return local.Dial(ctx, f.dir, node, network, "10.43.0.10:53")
	}}
	ctx, cancel := context.WithTimeout(f.t.Context(), 3*time.Second)
	defer cancel()
	ips, err := r.LookupHost(ctx, "web.default.svc.cluster.local.")
	if err == nil && !slices.Equal(ips, []string{f.ip}) {
		err = fmt.Errorf("it is said to be at %v", ips)
	}
	return err
}

// kernel returns the interfaces, routes and nftables tables of each node that are not a pod's.
func (f *faults) kernel() (out []string) {
	f.t.Helper()
	for _, node := range f.nodes {
		links := 0
		var names []string
		for line := range strings.Lines(f.inside(f.t, node, "ip", "-o", "link")) {
			name, _, _ := strings.Cut(strings.Trim(strings.Fields(line)[1], ":"), "@") // the number behind it is another machine's
			if strings.HasPrefix(name, "veth") {
				links++
				continue
			}
			names = append(names, name)
		}
		pods, err := f.api.CoreV1().Pods("").List(f.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		if err != nil {
			f.t.Fatal(err)
		}
		if links != len(pods.Items) {
			f.t.Errorf("%s has %d links to %d pods", node, links, len(pods.Items))
		}
		slices.Sort(names)
		routes := strings.Split(f.inside(f.t, node, "ip", "route", "show", "proto", "83"), "\n")
		for i := range routes {
			routes[i] = strings.TrimSpace(routes[i])
		}
		slices.Sort(routes)
		out = append(out, fmt.Sprintf("%s: %s; %s", node, strings.Join(names, " "), strings.Join(routes, ", ")))
	}
	return out
}
