package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/internal/timerslack"
)

func pidPath(dataDir string) string { return filepath.Join(dataDir, "skiff.pid") }

// Occupy marks a data directory as used by this process, until release. It fails if another uses it.
func Occupy(dataDir string) (release func(), err error) {
	if err := PrepareDataDir(dataDir); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(pidPath(dataDir), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("another skiff uses %s", dataDir)
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		f.Close()
		return nil, err
	}
	// The file stays: were it removed, one process could lock the old file and another the new one.
	return func() { f.Close() }, nil
}

// lock takes the lock for as long as the file is open. Who only looks whether it is taken (see occupant) holds it for a moment.
func lock(f *os.File) (err error) {
	for range 20 {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

// occupant returns the process that uses a data directory, or 0. The lock, not the number in the file, says whether there is one: the
// number may be another program's by now.
func occupant(dataDir string) (int, error) {
	if err := CheckDataDir(dataDir); err != nil { // what it says of a process is believed, and the process may be signalled
		return 0, err
	}
	f, err := os.Open(pidPath(dataDir))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for range 20 { // it is locked for a moment before it says by whom
		if syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
			return 0, nil
		}
		var buf [32]byte
		n, _ := f.ReadAt(buf[:], 0)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n]))); err == nil {
			return pid, nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return 0, fmt.Errorf("%s is in use but does not say by whom", pidPath(dataDir))
}

// Launch starts this program again in the background with the given arguments, unless it runs already, and waits until the API answers.
func Launch(ctx context.Context, dataDir string, args []string) (started bool, err error) {
	if err := PrepareDataDir(dataDir); err != nil {
		return false, err
	}
	done, err := TakeTurns(ctx, dataDir, fmt.Errorf("somebody else is starting a cluster in %s", dataDir))
	if err != nil {
		return false, err
	}
	defer done()
	pid, err := occupant(dataDir)
	if err != nil {
		return false, err
	}
	if pid != 0 {
		return false, awaitReady(ctx, dataDir, func() error {
			if now, err := occupant(dataDir); err != nil || now != pid {
				return errors.Join(err, fmt.Errorf("process %d ended before it was ready: %s", pid, LastLine(LogPath(dataDir))))
			}
			return nil
		})
	}
	// What an earlier process left must not be taken for this one's.
	if err := os.Remove(KubeconfigPath(dataDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	log, err := OpenLog(os.OpenFile, LogPath(dataDir))
	if err != nil {
		return false, err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := timerslack.Start(cmd, timerslack.Ample); err != nil {
		return false, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	err = awaitReady(ctx, dataDir, func() error {
		select {
		case err := <-exited:
			return fmt.Errorf("skiff ended before it was ready (%v): %s", err, LastLine(LogPath(dataDir)))
		default:
			return nil
		}
	})
	return err == nil, err
}

// TakeTurns keeps others who take turns at a directory from it until done. The error is busy if they do not come to an end in time.
func TakeTurns(ctx context.Context, dir string, busy error) (done func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		select {
		case <-ctx.Done():
			f.Close()
			return nil, busy
		case <-time.After(5 * time.Millisecond):
		}
	}
	return func() { f.Close() }, nil
}

// awaitReady waits for the administrator's kubeconfig, which is written once the API answers. ended says when that will not happen.
func awaitReady(ctx context.Context, dataDir string, ended func() error) error {
	for {
		if _, err := os.Stat(KubeconfigPath(dataDir)); err == nil {
			return nil
		}
		if err := ended(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("skiff was not ready in time; see %s", LogPath(dataDir))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// AwaitNode waits until a node of a cluster that runs is Ready, as its kubelet has said since: what the API remembers of the time before means nothing. A
// kubelet renews its lease once it has reported how the node is.
func AwaitNode(ctx context.Context, dataDir, name string, since time.Time) error {
	config, err := clientcmd.BuildConfigFromFlags("", KubeconfigPath(dataDir))
	if err != nil {
		return err
	}
	config.QPS = -1 // somebody waits for it
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	core, err := corev1client.NewForConfigAndClient(config, transport)
	if err != nil {
		return err
	}
	coordination, err := coordinationv1client.NewForConfigAndClient(config, transport)
	if err != nil {
		return err
	}
	why, reported := "it has not reported yet", since.IsZero()
	for {
		if !reported {
			lease, err := coordination.Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
			reported = err == nil && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(since)
		}
		if reported {
			object, err := core.Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				object = &corev1.Node{}
			}
			for _, condition := range object.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
					return nil
				} else if condition.Type == corev1.NodeReady {
					why = condition.Message
					if len(object.Spec.PodCIDRs) == 0 {
						why += " (it has no range of pod addresses)"
					}
				}
			}
		}
		if pid, err := occupant(dataDir); err == nil && pid == 0 {
			return fmt.Errorf("skiff ended before node %s was Ready: %s", name, LastLine(LogPath(dataDir)))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("node %s was not Ready in time: %s; see %s", name, why, LogPath(dataDir))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stopTime bounds how long a process may take to end after it was asked to.
const stopTime = 30 * time.Second

// Terminate asks the process of a data directory to end and waits for it.
func Terminate(ctx context.Context, dataDir string) (stopped bool, err error) {
	pid, err := occupant(dataDir)
	if err != nil || pid == 0 {
		return false, err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return false, fmt.Errorf("stopping process %d: %w", pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	for {
		if now, err := occupant(dataDir); err != nil || now != pid {
			return true, err
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("process %d has not ended after %v; see %s", pid, stopTime, LogPath(dataDir))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Purge removes everything of a cluster that does not run.
func Purge(dataDir, name string) error {
	if pid, err := occupant(dataDir); err != nil || pid != 0 {
		return errors.Join(err, fmt.Errorf("%s is still in use by process %d", dataDir, pid))
	}
	if err := ForgetKubeconfig(dataDir, name); err != nil {
		return err
	}
	entries, err := os.ReadDir(dataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	left := 0
	for _, e := range entries { // a slip of the keyboard must not cost somebody a home directory
		if !ours(e.Name()) {
			left++
		} else if err := os.RemoveAll(filepath.Join(dataDir, e.Name())); err != nil {
			return err
		}
	}
	if left > 0 {
		return fmt.Errorf("%s also holds what is not skiff's, which is left there", dataDir)
	}
	return os.Remove(dataDir)
}

// ours reports whether a file in a data directory is one that skiff makes.
func ours(name string) bool {
	switch name {
	case agentMemoryFile, agentMemoryFile + partSuffix, AgentTokenFile, AgentTokenFile + partSuffix, "kubelet", "log", "images", "registry", "cni", "containerd", "bundle":
		return true // of the node
	case "nodes", "nodes.json", "nodes.json.part", "program":
		return true // of local nodes
	case "etcd", "etcd.restored", "pki", "skiff.pid", "admin.kubeconfig", "admin.kubeconfig.part":
		return true
	}
	return strings.HasPrefix(name, "etcd.before-") || ownKubeconfig(name) || logFile(name)
}

// Status is how a cluster is.
type Status struct {
	Running       bool
	PID           int
	ResidentBytes int64
	URL, Version  string
	Problem       error
	Database      DatabaseUsage // zero for an agent, and if the API does not say
}

// SetProcess says by which number this machine knows the process, if it runs in another machine's namespaces; 0 is that it does not run.
func (s *Status) SetProcess(pid int) {
	s.Running, s.PID, s.ResidentBytes = pid != 0, pid, residentBytes(pid)
}

// Inspect asks a cluster how it is.
func Inspect(ctx context.Context, dataDir string) (Status, error) {
	pid, err := occupant(dataDir)
	if err != nil || pid == 0 {
		return Status{}, err
	}
	s := Status{Running: true, PID: pid, ResidentBytes: residentBytes(pid)}
	file := KubeconfigPath(dataDir)
	if _, ok := IsAgent(dataDir); ok {
		file = filepath.Join(dataDir, agentKubeconfig)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		s.Problem = err
		return s, nil
	}
	s.URL, config.Timeout = config.Host, 5*time.Second
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return s, err
	}
	if v, err := client.ServerVersion(); err == nil {
		s.Version = v.GitVersion
	}
	_, s.Problem = client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Raw()
	if _, agent := IsAgent(dataDir); !agent && s.Problem == nil {
		s.Database, s.Problem = readUsage(ctx, client.RESTClient())
	}
	return s, nil
}

// residentBytes is a process's resident memory, where the system tells.
func residentBytes(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	parts := strings.Fields(string(data))
	if len(parts) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
