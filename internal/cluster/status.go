package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/internal/cluster/process"
)

// Launch starts this program in the background with the given arguments, unless it runs in the data directory already, and waits until the API answers.
func Launch(ctx context.Context, dataDir string, args []string) (started bool, err error) {
	// The administrator's kubeconfig is written once the API answers.
	return process.Launch(ctx, process.LaunchOptions{DataDir: dataDir, Args: args, ReadyFile: KubeconfigPath(dataDir), Version: Version})
}

// AwaitNode waits until a node of a running cluster is Ready. A condition that was reported before since does not count: the kubelet renews its Lease once it
// has reported the node's status, so the condition is believed only after a renewal later than since. A zero since believes what the API has.
func AwaitNode(ctx context.Context, dataDir, name string, since time.Time) error {
	config, err := clientcmd.BuildConfigFromFlags("", KubeconfigPath(dataDir))
	if err != nil {
		return err
	}
	config.QPS = -1 // no client-side throttling: somebody waits
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
	why, statusReported := "it has not reported yet", since.IsZero()
	for {
		if !statusReported {
			lease, err := coordination.Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
			statusReported = err == nil && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(since)
		}
		if statusReported {
			node, err := core.Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				node = &corev1.Node{}
			}
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
					return nil
				} else if condition.Type == corev1.NodeReady {
					why = condition.Message
					if len(node.Spec.PodCIDRs) == 0 {
						why += " (it has no range of pod addresses)"
					}
				}
			}
		}
		if pid, err := process.PID(dataDir); err == nil && pid == 0 {
			return fmt.Errorf("skiff ended before node %s was Ready: %s", name, process.LastLine(process.LogPath(dataDir)))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("node %s was not Ready in time: %s; see %s", name, why, process.LogPath(dataDir))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Status is what `skiff status` shows of a cluster or an agent.
type Status struct {
	Running       bool
	PID           int
	ResidentBytes int64
	URL, Version  string
	Problem       error         // why the API is not ready; nil if it is
	Database      DatabaseUsage // zero for an agent, and if the API does not report it
}

// SetProcess sets the process by the pid that it has on this machine, for a server that runs in another pid namespace. 0 says that it does not run.
func (s *Status) SetProcess(pid int) {
	s.Running, s.PID, s.ResidentBytes = pid != 0, pid, process.ResidentBytes(pid)
}

// Inspect returns the status of the cluster or agent of a data directory.
func Inspect(ctx context.Context, dataDir string) (Status, error) {
	pid, err := process.PID(dataDir)
	if err != nil || pid == 0 {
		return Status{}, err
	}
	var s Status
	s.SetProcess(pid)
	file := KubeconfigPath(dataDir)
	_, agent := IsAgent(dataDir)
	if agent {
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
	if !agent && s.Problem == nil {
		s.Database, s.Problem = readUsage(ctx, client.RESTClient())
	}
	return s, nil
}
