package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

var (
	rounds = flag.Int("rounds", 4, "how often the server is killed")
	seed   = flag.Uint64("seed", 0, "seed to replay; random if 0")
)

const (
	namespace = "default"
	writers   = 8
)

// TestKill kills the server with SIGKILL at random moments while clients write. Whatever was acknowledged must be there afterwards, and a
// watch that resumes from the last version it saw misses nothing and repeats nothing.
func TestKill(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d, %d rounds", *seed, *rounds)
	random := rand.New(rand.NewPCG(*seed, 7))
	s := &server{t: t, binary: build(t), dir: t.TempDir(), port: freePort(t)}
	s.start()
	t.Cleanup(s.stop)
	follower := newFollower(t, s)
	ledger := &ledger{objects: map[string]*promise{}}
	for round := range *rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for w := range writers {
			source := rand.New(rand.NewPCG(*seed, uint64(round*writers+w)))
			wg.Go(func() { ledger.write(ctx, s.client(), w, source) })
		}
		time.Sleep(time.Duration(100+random.IntN(900)) * time.Millisecond)
		s.kill()
		cancel()
		wg.Wait()
		s.start()
		ledger.check(t, s.client(), round)
	}
	follower.check(t, s)
}

// promise is what is known of one object: what was acknowledged last, and what may or may not have happened since.
type promise struct {
	exists   bool
	value    string
	doubtful map[string]bool // values that were sent and not acknowledged; "" is a deletion
}

type ledger struct {
	mu           sync.Mutex
	objects      map[string]*promise
	acknowledged int
}

// write creates, updates and deletes objects of its own until ctx ends, and writes down what the server acknowledged.
func (l *ledger) write(ctx context.Context, c kubernetes.Interface, writer int, random *rand.Rand) {
	maps := c.CoreV1().ConfigMaps(namespace)
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("w%d-%d", writer, random.IntN(50))
		value := fmt.Sprintf("%d-%d", n, random.Uint32())
		l.mu.Lock()
		p := l.objects[name]
		if p == nil {
			p = &promise{doubtful: map[string]bool{}}
			l.objects[name] = p
		}
		l.mu.Unlock()
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"chaos": "yes"}}, Data: map[string]string{"v": value}}
		var err error
		switch {
		case p.exists && random.IntN(4) == 0:
			value = ""
			err = maps.Delete(ctx, name, metav1.DeleteOptions{})
		case p.exists:
			_, err = maps.Update(ctx, object, metav1.UpdateOptions{})
		default:
			_, err = maps.Create(ctx, object, metav1.CreateOptions{})
		}
		l.mu.Lock()
		if err == nil {
			p.exists, p.value, p.doubtful = value != "", value, map[string]bool{}
			l.acknowledged++
		} else {
			p.doubtful[value] = true
		}
		l.mu.Unlock()
		if err != nil {
			return // the server is gone; what comes next is the next round's
		}
	}
}

// check compares what is there with what was promised, and settles what was in doubt.
func (l *ledger) check(t *testing.T, c kubernetes.Interface, round int) {
	t.Helper()
	list, err := c.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "chaos=yes"})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]string{}
	for _, m := range list.Items {
		there[m.Name] = m.Data["v"]
	}
	for name, p := range l.objects {
		value, exists := there[name]
		promised := exists == p.exists && value == p.value
		if !promised && !p.doubtful[value] {
			t.Errorf("round %d: %s is %q (exists: %v), acknowledged was %q (exists: %v), in doubt %v", round, name, value, exists, p.value, p.exists, p.doubtful)
		}
		p.exists, p.value, p.doubtful = exists, value, map[string]bool{}
	}
	t.Logf("round %d: %d objects, %d writes acknowledged so far", round, len(there), l.acknowledged)
}

// follower watches through all restarts.
type follower struct {
	mu     sync.Mutex
	seen   map[string]string // by name: the resourceVersion of the last event
	last   uint64            // version of the last event of all
	errs   []string
	events int
	done   chan struct{}
	cancel context.CancelFunc
}

func newFollower(t *testing.T, s *server) *follower {
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{seen: map[string]string{}, done: make(chan struct{}), cancel: cancel}
	list, err := s.client().CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(f.done)
		version := list.ResourceVersion
		for ctx.Err() == nil {
			w, err := s.client().CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: version, LabelSelector: "chaos=yes"})
			if err != nil {
				time.Sleep(10 * time.Millisecond) // the server is down
				continue
			}
			for e := range w.ResultChan() {
				version = f.take(e, version)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-f.done })
	return f
}

// take notes an event and returns the version to resume from.
func (f *follower) take(e watch.Event, version string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, ok := e.Object.(*corev1.ConfigMap)
	if !ok {
		f.errs = append(f.errs, fmt.Sprintf("after %s: %v %v", version, e.Type, apierrors.FromObject(e.Object)))
		return version
	}
	f.events++
	n, err := strconv.ParseUint(m.ResourceVersion, 10, 64)
	if err != nil || n <= f.last {
		f.errs = append(f.errs, fmt.Sprintf("%s %s at %s came after %d", e.Type, m.Name, m.ResourceVersion, f.last))
	}
	f.last = n
	before, known := f.seen[m.Name]
	switch {
	case e.Type == watch.Added && known:
		f.errs = append(f.errs, fmt.Sprintf("%s was added at %s, but was there since %s", m.Name, m.ResourceVersion, before))
	case e.Type != watch.Added && !known:
		f.errs = append(f.errs, fmt.Sprintf("%s of %s at %s, which was never added", e.Type, m.Name, m.ResourceVersion))
	}
	if e.Type == watch.Deleted {
		delete(f.seen, m.Name)
	} else {
		f.seen[m.Name] = m.ResourceVersion
	}
	return m.ResourceVersion
}

// check waits until the watch has told everything there is.
func (f *follower) check(t *testing.T, s *server) {
	t.Helper()
	list, err := s.client().CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "chaos=yes"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, m := range list.Items {
		want[m.Name] = m.ResourceVersion
	}
	deadline := time.Now().Add(20 * time.Second)
	for !f.holds(want) {
		if time.Now().After(deadline) {
			t.Errorf("the watch does not end with what is there: %d objects seen, %d there", len(f.seen), len(want))
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.errs {
		t.Error(e)
	}
	t.Logf("the watch saw %d events", f.events)
}

func (f *follower) holds(want map[string]string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.seen) != len(want) {
		return false
	}
	for name, version := range want {
		if f.seen[name] != version {
			return false
		}
	}
	return true
}

// server is the built program, in a process of its own.
type server struct {
	t           *testing.T
	binary, dir string
	port        int
	cmd         *exec.Cmd
}

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "skiff")
	if out, err := exec.Command("go", "build", "-o", binary, "skiff/cmd/skiff").CombinedOutput(); err != nil {
		t.Fatalf("building skiff: %v\n%s", err, out)
	}
	return binary
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (s *server) kubeconfig() string { return filepath.Join(s.dir, "admin.kubeconfig") }

// start runs the server and waits until it answers.
func (s *server) start() {
	s.t.Helper()
	if err := os.RemoveAll(s.kubeconfig()); err != nil {
		s.t.Fatal(err)
	}
	var log strings.Builder
	s.cmd = exec.Command(s.binary, "server", "--no-node", "--data-dir", s.dir, "--port", strconv.Itoa(s.port))
	s.cmd.Stderr = &log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		if _, err := os.Stat(s.kubeconfig()); err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.kill()
			s.t.Fatalf("the server does not start:\n%s", log.String())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *server) kill() {
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	_ = s.cmd.Wait()
}

func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
}

func (s *server) client() kubernetes.Interface {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig())
	if err != nil {
		// The file is written anew at each start; who asks meanwhile gets a client that reaches nobody.
		config, err = clientcmd.BuildConfigFromFlags(fmt.Sprintf("https://127.0.0.1:%d", s.port), "")
		if err != nil {
			panic(err)
		}
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	return kubernetes.NewForConfigOrDie(config)
}
