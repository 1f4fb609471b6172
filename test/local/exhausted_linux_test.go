package local

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// goesOn is how long a pod may wait when there is an address for it, on a busy machine: it is tried every ten seconds, and more often at first.
const goesOn = 40 * time.Second

// TestExhausted has more pods than a node has addresses, and more nodes than the cluster has ranges. Those that get none wait and say why, the others do not
// notice, and as soon as something comes free, those that waited go on by themselves.
func TestExhausted(t *testing.T) {
	c := newCluster(t, "cabin")
	c.load(t, "testserver")
	// Two ranges of eight addresses: the network's, the node's, that for broadcasts, and five for pods.
	c.up(t, "--nodes", "1", "--name", c.name, "--cluster-cidr", "10.42.0.0/28", "--node-cidr-mask-size-ipv4", "29")
	t.Run("addresses", func(t *testing.T) { c.morePodsThanAddresses(t, "cabin-1", 5) })
	t.Run("ranges", func(t *testing.T) { c.moreNodesThanRanges(t) })
}

func (c *cluster) morePodsThanAddresses(t *testing.T, node string, room int) {
	grace := int64(0)
	create := func(name string, edits ...func(*corev1.PodSpec)) {
		t.Helper()
		spec := corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{
			Name: "main", Image: "skiff.internal/testserver", ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"--listen=:8080"},
		}}}
		for _, edit := range edits {
			edit(&spec)
		}
		if _, err := c.api.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	get := func(name string) *corev1.Pod {
		t.Helper()
		p, err := c.api.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	runs := func(name string) (pod *corev1.Pod) {
		t.Helper()
		eventually(t, "pod "+name+" runs", func() error {
			if pod = get(name); len(pod.Status.ContainerStatuses) != 1 || !pod.Status.ContainerStatuses[0].Ready {
				return fmt.Errorf("it is %s: %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
			}
			return nil
		})
		return pod
	}
	n := c.ready(t, node, true)
	own := netip.MustParsePrefix(n.Spec.PodCIDR)
	var want, got []string
	var others []*corev1.Pod
	first := own.Addr().Next() // the node's
	address := first
	for i := range room {
		address = address.Next()
		want = append(want, address.String())
		create(fmt.Sprintf("has-%d", i))
	}
	for i := range room {
		others = append(others, runs(fmt.Sprintf("has-%d", i)))
		got = append(got, others[i].Status.PodIP)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Fatalf("pods on a node with %s have %v, want %v", own, got, want)
	}

	create("waits")
	because := fmt.Sprintf("no IP addresses available in range set: %s-%s", first, address)
	eventually(t, "the pod says why it waits", func() error {
		events, err := c.api.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: fields.Set{"involvedObject.name": "waits", "reason": "FailedCreatePodSandBox"}.String()})
		if err != nil {
			return err
		}
		var said []string
		for _, e := range events.Items {
			said = append(said, e.Type+" "+e.Message)
			if e.Type == corev1.EventTypeWarning && strings.HasPrefix(e.Message, "Failed to create pod sandbox: rpc error: ") && strings.Contains(e.Message, because) {
				t.Log(e.Message)
				return nil
			}
		}
		return fmt.Errorf("it says %q, but not %q", said, because)
	})
	waits := get("waits")
	if s := waits.Status; s.Phase != corev1.PodPending || s.PodIP != "" || len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].State.Waiting == nil ||
		s.ContainerStatuses[0].State.Waiting.Reason != "ContainerCreating" {
		t.Errorf("meanwhile it is %+v", s)
	}
	create("needs-none", func(s *corev1.PodSpec) {
		s.HostNetwork, s.Containers[0].Args = true, []string{"--listen=:8099"}
	})
	runs("needs-none")
	c.ready(t, node, true)
	for _, was := range others {
		if is := runs(was.Name); is.Status.PodIP != was.Status.PodIP || is.Status.ContainerStatuses[0].ContainerID != was.Status.ContainerStatuses[0].ContainerID {
			t.Errorf("%s was %+v and is %+v", was.Name, was.Status, is.Status)
		}
	}

	gone := others[2]
	if err := c.api.CoreV1().Pods("default").Delete(t.Context(), gone.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if ip := runs("waits").Status.PodIP; ip != gone.Status.PodIP {
		t.Errorf("%s came free, and the pod that waited has %s", gone.Status.PodIP, ip)
	}
	if took := time.Since(began); took > goesOn {
		t.Errorf("the pod that waited went on after %v", took)
	}
	others = slices.Delete(others, 2, 3)
	for _, was := range others {
		if is := get(was.Name); is.Status.PodIP != was.Status.PodIP || is.Status.ContainerStatuses[0].ContainerID != was.Status.ContainerStatuses[0].ContainerID {
			t.Errorf("%s was %+v and is %+v", was.Name, was.Status, is.Status)
		}
	}
	// The tries that failed took nothing: each address that is written down is a pod's. The data of the first node is the cluster's.
	files, err := filepath.Glob(filepath.Join(c.dir, "cni", "addresses", "*", "10.*"))
	if err != nil {
		t.Fatal(err)
	}
	got = nil
	for _, f := range files {
		got = append(got, filepath.Base(f))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("addresses %v are written down, want %v", got, want)
	}
}

func (c *cluster) moreNodesThanRanges(t *testing.T) {
	was := c.ready(t, "cabin-1", true)
	// A node that is only written down takes the range that is left.
	ghost, err := c.api.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ghost"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other node has a range", func() (err error) {
		if ghost, err = c.api.CoreV1().Nodes().Get(t.Context(), ghost.Name, metav1.GetOptions{}); err == nil && ghost.Spec.PodCIDR == "" {
			err = os.ErrNotExist
		}
		return err
	})
	up := make(chan string, 1)
	go func() {
		defer close(up)
		if code, out, errs := c.try(t, "up", "--nodes", "2"); code != 0 {
			up <- fmt.Sprintf("skiff up: exit code %d\n%s%s", code, out, errs)
		}
	}()
	eventually(t, "the node says that it gets no range", func() error {
		events, err := c.api.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: fields.Set{"involvedObject.name": "cabin-2", "reason": "CIDRNotAvailable"}.String()})
		if err == nil && (len(events.Items) != 1 || events.Items[0].Message != "Node cabin-2 status is now: CIDRNotAvailable") {
			err = fmt.Errorf("events: %+v", events.Items)
		}
		return err
	})
	n := c.ready(t, "cabin-2", false)
	if n.Spec.PodCIDR != "" {
		t.Errorf("it has %s, and so has %s", n.Spec.PodCIDR, ghost.Name)
	}
	if is := c.ready(t, "cabin-1", true); is.Spec.PodCIDR != was.Spec.PodCIDR {
		t.Errorf("the other node had %s and has %s", was.Spec.PodCIDR, is.Spec.PodCIDR)
	}
	if err := c.api.CoreV1().Nodes().Delete(t.Context(), ghost.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if n = c.ready(t, "cabin-2", true); n.Spec.PodCIDR != ghost.Spec.PodCIDR {
		t.Errorf("%s came free, and the node has %q", ghost.Spec.PodCIDR, n.Spec.PodCIDR)
	}
	if problem := <-up; problem != "" {
		t.Error(problem)
	}
}
