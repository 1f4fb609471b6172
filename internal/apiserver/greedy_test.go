package apiserver_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"skiff/internal/apitest"
)

var (
	greedyConnections = flag.Int("greedy.connections", 100, "connections of the greedy user of TestGreedyUser")
	greedyTime        = flag.Duration("greedy.time", 2*time.Second, "how long TestGreedyUser measures, before and during the attack")
	greedyFloor       = flag.Duration("greedy.floor", 15*time.Second, "99th percentile that is always good enough, as other load on the machine is not the attacker's: by default, all that is tested is that nobody else is refused or waits as long for a seat")
)

// One user sends requests over many connections as fast as it can, lists and watches among them, and does not wait when it is told to; another's steady requests take
// at most twice as long as without it, in the 99th percentile, and nodes renew their leases. The users are processes of their own.
// `go test ./internal/apiserver -run TestGreedyUser -v -greedy.connections=1000 -greedy.time=30s -greedy.floor=0` is the whole measurement.
func TestGreedyUser(t *testing.T) {
	api := apitest.Start(t, apitest.WithoutGuard())
	accounts := "system:serviceaccounts"
	for _, name := range []string{"steady", "greedy"} {
		if _, err := api.Client().RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccount:default:" + name}},
			RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", APIGroup: rbacv1.GroupName, Name: "cluster-admin"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 500 {
		if _, err := api.Client().CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)},
			Data: map[string]string{"text": strings.Repeat("x", 1000)}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	steady := startGreedyClient(t, "steady", api.ConfigFor("system:serviceaccount:default:steady", accounts))
	nodes := startGreedyClient(t, "nodes", api.ConfigFor("system:node:n1", "system:nodes"))
	quiet, quietLeases := steady.measure(t), nodes.measure(t)
	greedy := startGreedyClient(t, "greedy", api.ConfigFor("system:serviceaccount:default:greedy", accounts))
	greedy.measure(t) // until all connections are open
	attack := greedy.begin()
	attacked, leases := steady.measure(t), nodes.measure(t)
	did := attack(t)
	t.Logf("99th percentile: quiet %v, beside %d connections %v (medians %v and %v); leases %v, then %v. The greedy user had %d responses a second, of them %d rejections",
		quiet.P99, *greedyConnections, attacked.P99, quiet.P50, attacked.P50, quietLeases.P99, leases.P99,
		did.Count*int(time.Second)/int(*greedyTime), did.Rejected*int(time.Second)/int(*greedyTime))
	for name, m := range map[string]measured{"quiet": quiet, "attacked": attacked, "quiet leases": quietLeases, "leases": leases} {
		if m.Failed > 0 || m.Rejected > 0 || m.Count == 0 {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if did.Count == 0 || did.Failed > did.Count/10 {
		t.Errorf("the greedy user: %+v", did)
	}
	if limit := max(2*quiet.P99, *greedyFloor); attacked.P99 > limit {
		t.Errorf("the 99th percentile is %v, more than %v", attacked.P99, limit)
	}
}

// measured is what a client has measured.
type measured struct {
	Count, Rejected, Failed int
	P50, P99                time.Duration
	Why                     string // the last failure
}

// greedyClient is a process with one of the clients of TestGreedyUser. It measures whenever it reads a line.
type greedyClient struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func startGreedyClient(t *testing.T, role string, config *rest.Config) *greedyClient {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), program, "-test.run=^TestGreedyClient$", "-greedy.connections", fmt.Sprint(*greedyConnections), "-greedy.time", greedyTime.String())
	c.Env = append(os.Environ(), "GREEDY_ROLE="+role, "GREEDY_HOST="+config.Host, "GREEDY_TOKEN="+config.BearerToken)
	c.Stderr = os.Stderr
	in, err1 := c.StdinPipe()
	out, err2 := c.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = c.Wait() // it may have been killed with the test's context
	})
	return &greedyClient{in, bufio.NewReader(out)}
}

// begin has the client measure, and returns what waits for the result.
func (c *greedyClient) begin() func(*testing.T) measured {
	_, err := io.WriteString(c.in, "\n")
	return func(t *testing.T) (m measured) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		line, err := c.out.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &m)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		return m
	}
}

func (c *greedyClient) measure(t *testing.T) measured {
	t.Helper()
	return c.begin()(t)
}

// TestGreedyClient is no test, but a client of TestGreedyUser.
func TestGreedyClient(t *testing.T) {
	role := os.Getenv("GREEDY_ROLE")
	if role == "" {
		t.Skip("it is started by TestGreedyUser")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	measure := map[string]func() measured{"steady": steadyUser, "nodes": renewLeases, "greedy": greedyUser(ctx)}[role]
	in := bufio.NewReader(os.Stdin)
	for {
		if _, err := in.ReadString('\n'); err != nil {
			os.Exit(0)
		}
		out, err := json.Marshal(measure())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s\n", out)
	}
}

// tally counts responses.
type tally struct {
	mu       sync.Mutex
	measured measured
	took     []time.Duration
}

func (c *tally) note(status int, err error, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.measured.Count++
	c.took = append(c.took, took)
	switch {
	case status == http.StatusTooManyRequests:
		c.measured.Rejected++
	case err != nil || status/100 != 2:
		c.measured.Failed++
		c.measured.Why = fmt.Sprint(status, err)
	}
}

func (c *tally) result() measured {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.took)
	if n := len(c.took); n > 0 {
		c.measured.P50, c.measured.P99 = c.took[n/2], c.took[n*99/100]
	}
	return c.measured
}

func greedyTransport() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 64}, Timeout: 30 * time.Second}
}

// send sends a request and reads its response.
func send(client *http.Client, method, path string, body string) (int, error) {
	r, err := http.NewRequest(method, os.Getenv("GREEDY_HOST")+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+os.Getenv("GREEDY_TOKEN"))
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

var runs atomic.Int64

// every calls do at an interval for greedyTime, whether or not the calls before have returned.
func every(interval time.Duration, do func(i int)) {
	var wg sync.WaitGroup
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for i := range int(*greedyTime / interval) {
		<-ticker.C
		wg.Go(func() { do(i) })
	}
	wg.Wait()
}

// steadyUser sends 50 requests a second: reads of one object, short lists and writes.
func steadyUser() measured {
	client, c, run := steadyHTTP(), tally{}, runs.Add(1)
	every(20*time.Millisecond, func(i int) {
		began := time.Now()
		var status int
		var err error
		switch i % 5 {
		case 0:
			status, err = send(client, http.MethodPost, "/api/v1/namespaces/default/secrets", fmt.Sprintf(`{"metadata":{"name":"s%d-%d"}}`, run, i))
		case 1:
			status, err = send(client, http.MethodGet, "/api/v1/namespaces/default/configmaps?limit=10", "")
		default:
			status, err = send(client, http.MethodGet, "/api/v1/namespaces/default/configmaps/c1", "")
		}
		c.note(status, err, time.Since(began))
	})
	return c.result()
}

var steadyHTTP = sync.OnceValue(greedyTransport)

// renewLeases renews a node's lease, as a hundred nodes do.
func renewLeases() measured {
	client, c := steadyHTTP(), tally{}
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	if status, err := send(client, http.MethodPost, leases, `{"metadata":{"name":"n1"},"spec":{"holderIdentity":"n1","leaseDurationSeconds":40}}`); status != http.StatusCreated && status != http.StatusConflict {
		c.note(status, err, 0)
	}
	every(100*time.Millisecond, func(int) {
		began := time.Now()
		status, err := send(client, http.MethodPatch, leases+"/n1", fmt.Sprintf(`{"spec":{"renewTime":%q}}`, began.UTC().Format("2006-01-02T15:04:05.000000Z")))
		c.note(status, err, time.Since(began))
	})
	return c.result()
}

// greedyUser keeps many connections busy until ctx ends: each sends the next request as soon as the last one was answered. The first measurement returns when all have
// been answered once.
func greedyUser(ctx context.Context) func() measured {
	var count, rejected, failed atomic.Int64
	var why atomic.Value
	var ready sync.WaitGroup
	start := sync.OnceFunc(func() {
		for i := range *greedyConnections {
			ready.Add(1)
			go func() {
				answered := sync.OnceFunc(ready.Done)
				client := greedyTransport()
				if i%2 == 0 {
					client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
				}
				for n := 0; ctx.Err() == nil; n++ {
					status, err := greedyRequest(ctx, client, i, n)
					count.Add(1)
					switch {
					case status == http.StatusTooManyRequests:
						rejected.Add(1)
					case err != nil && status == 0 || status >= 300:
						failed.Add(1)
						why.Store(fmt.Sprint(status, err))
					}
					answered()
				}
			}()
		}
		ready.Wait()
	})
	began := false
	return func() measured {
		if start(); !began {
			began = true
			return measured{}
		}
		before := [3]int64{count.Load(), rejected.Load(), failed.Load()}
		time.Sleep(2 * *greedyTime)
		text, _ := why.Load().(string)
		return measured{Count: int(count.Load()-before[0]) / 2, Rejected: int(rejected.Load()-before[1]) / 2, Failed: int(failed.Load()-before[2]) / 2, Why: text}
	}
}

// greedyRequest sends a read, a list of everything, a write or a watch from the beginning.
func greedyRequest(ctx context.Context, client *http.Client, connection, n int) (int, error) {
	const all = "/api/v1/namespaces/default/configmaps"
	switch rand.IntN(10) {
	case 0, 1:
		return send(client, http.MethodGet, all, "")
	case 2:
		return send(client, http.MethodPatch, fmt.Sprintf("%s/c%d", all, rand.IntN(500)), fmt.Sprintf(`{"data":{"last":"%d-%d"}}`, connection, n))
	case 3:
		return send(client, http.MethodDelete, fmt.Sprintf("%s/c%d?dryRun=All", all, rand.IntN(500)), "")
	case 4:
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, os.Getenv("GREEDY_HOST")+all+"?watch=1", nil)
		if err != nil {
			return 0, err
		}
		r.Header.Set("Authorization", "Bearer "+os.Getenv("GREEDY_TOKEN"))
		answer, err := client.Do(r)
		if err != nil {
			if ctx.Err() != nil {
				return http.StatusOK, nil // it waited that long
			}
			return 0, err
		}
		defer answer.Body.Close()
		_, _ = io.Copy(io.Discard, answer.Body) // until it is canceled
		return answer.StatusCode, nil
	default:
		return send(client, http.MethodGet, fmt.Sprintf("%s/c%d", all, rand.IntN(500)), "")
	}
}
