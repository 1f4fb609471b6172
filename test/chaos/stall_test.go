//go:build linux

package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/internal/apiserver/authz"
	"skiff/internal/cluster"
	"skiff/test/program"
)

// TestStall stops leaders for longer than their lease, in the middle of their work, and continues them when there is another leader. They send
// no more requests then. After a shorter stop they go on working.
func TestStall(t *testing.T) {
	random := pickSeed(t)
	door := &requestLog{requests: map[caller][]request{}}
	data := startServer(t, door)
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(data, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.UserAgent = -1, tester
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	controllers, schedulers := newRivals(t, data, "controller-manager", door), newRivals(t, data, "scheduler", door)
	keepBusy(t, api)
	for range max(1, *faultRounds/10) {
		var stalls sync.WaitGroup
		for _, r := range []*replicas{controllers, schedulers} {
			again := rand.New(rand.NewPCG(random.Uint64(), 1))
			stalls.Go(func() { r.stall(again) })
		}
		stalls.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	requests := 0
	for _, all := range door.requests {
		requests += len(all)
	}
	t.Logf("%d leaders were stalled, among %d requests", controllers.stalled+schedulers.stalled, requests)
}

const tester = "tester"

// caller identifies an instance of a component by the Host header and the user agent of its requests.
type caller struct{ host, component string }

// request is a request that the server received.
type request struct {
	at   time.Time
	what string
}

// requestLog records the requests of each caller.
type requestLog struct {
	mu       sync.Mutex
	requests map[caller][]request
}

func (d *requestLog) saw(r *http.Request, _ *authz.Attributes) {
	at := time.Now()
	host, _, _ := strings.Cut(r.Host, ":")
	who := caller{host, "controller-manager"} // whose loops have names of their own
	agent, _, _ := strings.Cut(r.UserAgent(), "/")
	if agent == tester {
		return
	}
	if agent == "kube-scheduler" {
		who.component = "scheduler"
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests[who] = append(d.requests[who], request{at, r.Method + " " + r.URL.Path + " by " + agent})
}

// since returns the requests of a caller after a time.
func (d *requestLog) since(who caller, from time.Time) (out []request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.requests[who] {
		if r.at.After(from) {
			out = append(out, r)
		}
	}
	return out
}

// startServer runs a server in this process whose requests are recorded.
func startServer(t *testing.T, d *requestLog) (data string) {
	t.Helper()
	port, err := strconv.Atoi(program.Port(t))
	if err != nil {
		t.Fatal(err)
	}
	data = t.TempDir()
	server, err := cluster.Start(t.Context(), cluster.Config{DataDir: data, Port: port, Disable: []string{"scheduler"}, HollowNodes: 5,
		Seen: d.saw, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return data
}

// replicas are two instances of a component.
type replicas struct {
	t         *testing.T
	door      *requestLog
	component string
	instances map[string]*instance // by the name they call the server
	stalled   int
}

func newRivals(t *testing.T, data, component string, d *requestLog) *replicas {
	t.Helper()
	r := &replicas{t: t, door: d, component: component, instances: map[string]*instance{}}
	file := filepath.Join(data, component+".kubeconfig")
	config, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		named := filepath.Join(data, component+"-"+host) // beside what the file refers to
		if err := os.WriteFile(named, []byte(strings.ReplaceAll(string(config), "127.0.0.1", host)), 0o600); err != nil {
			t.Fatal(err)
		}
		i := &instance{process: newProcess(t, component+"-"+host), component: component}
		i.args = append([]string{program.Path(t), component, "--kubeconfig", named}, election...)
		i.start()
		r.instances[host] = i
	}
	return r
}

// leader waits until there is a leader other than the given one, and returns it.
func (r *replicas) leader(not string) string {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for host, i := range r.instances {
			if host != not && i.leads() && !i.hasEnded() {
				return host
			}
			i.revive()
		}
	}
	for host, i := range r.instances {
		r.t.Errorf("%s at %s does not lead\n%s", r.component, host, i.tail())
	}
	return ""
}

// awaitWrites waits until an instance has sent a number of writes, which shows that it works.
func (r *replicas) awaitWrites(host string, n int) {
	r.t.Helper()
	from := time.Now()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		writes := 0
		for _, request := range r.door.since(caller{host, r.component}, from) {
			if !strings.HasPrefix(request.what, "GET") && !strings.Contains(request.what, "/leases/") {
				writes++
			}
		}
		if writes >= n {
			return
		}
		if r.instances[host].hasEnded() {
			return
		}
	}
	r.t.Errorf("%s at %s does nothing\n%s", r.component, host, r.instances[host].tail())
}

// stall stops the leader briefly, then until there is another leader, and checks what it does afterwards.
func (r *replicas) stall(random *rand.Rand) {
	r.t.Helper()
	host := r.leader("")
	if host == "" {
		return
	}
	r.awaitWrites(host, 1+random.IntN(20))
	if r.t.Failed() {
		return
	}
	stalled := r.instances[host]
	time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
	stalled.signal(syscall.SIGSTOP)
	time.Sleep(time.Duration(50+random.IntN(100)) * time.Millisecond)
	stalled.signal(syscall.SIGCONT)
	r.awaitWrites(host, 1+random.IntN(20))
	if stalled.hasEnded() {
		r.t.Errorf("%s has ended after a short stop\n%s", r.component, stalled.tail())
		return
	}
	stalled.signal(syscall.SIGSTOP)
	other := r.leader(host)
	if other == "" {
		return
	}
	r.awaitWrites(other, 1+random.IntN(20))
	again := time.Now()
	stalled.signal(syscall.SIGCONT)
	select {
	case <-stalled.ended:
	case <-time.After(10 * time.Second):
		r.t.Errorf("%s goes on though another one leads\n%s", r.component, stalled.tail())
		return
	}
	if !stalled.lostLead() {
		r.t.Errorf("%s has ended:\n%s", r.component, stalled.tail())
	}
	r.awaitWrites(other, 5) // what was on its way would have come by now
	for _, request := range r.door.since(caller{host, r.component}, again) {
		r.t.Errorf("%s: after its lease was lost, and %v after it went on: %s\n%s", host, request.at.Sub(again), request.what, stalled.tail())
	}
	r.stalled++
	stalled.start()
}

// keepBusy creates and deletes Deployments, so that all components always have work.
func keepBusy(t *testing.T, api kubernetes.Interface) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var busy sync.WaitGroup
	busy.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			d := deployment(fmt.Sprint("busy-", n), anyhow, seeded(uint64(n)))
			replicas := int32(4)
			d.Spec.Replicas, d.Spec.Strategy = &replicas, appsv1.DeploymentStrategy{}
			if _, err := api.AppsV1().Deployments("default").Create(ctx, d, metav1.CreateOptions{}); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
			if n >= 5 {
				if err := api.AppsV1().Deployments("default").Delete(ctx, fmt.Sprint("busy-", n-5), metav1.DeleteOptions{}); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(30 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() {
		stop()
		busy.Wait()
	})
}
