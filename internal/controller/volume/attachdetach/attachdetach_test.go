package attachdetach_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/volume/attachdetach"
	"skiff/internal/controller/volume/persistentvolume"
	"skiff/test/seed"
)

const driver = "example.com"

// cluster is a server with the loops that bind and attach, a driver that attaches what VolumeAttachments ask for, and nodes that mount it.
type cluster struct {
	testing.TB
	*apitest.Server

	mu       sync.Mutex
	attached map[string]map[string]bool // nodes by volume
	mounted  map[string]map[string]bool // nodes by volume
}

func start(t testing.TB) *cluster {
	c := &cluster{TB: t, Server: apitest.Start(t), attached: map[string]map[string]bool{}, mounted: map[string]map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	running.Go(func() { c.every(ctx, c.drive) })
	return c
}

func (c *cluster) ok(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// every calls a function until ctx ends. Conflicts and what is gone meanwhile are no errors.
func (c *cluster) every(ctx context.Context, do func(context.Context) error) {
	for ctx.Err() == nil {
		if err := do(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			c.Error(err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// drive does what an external-attacher and its driver do.
func (c *cluster) drive(ctx context.Context) error {
	api := c.Client().StorageV1().VolumeAttachments()
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, a := range list.Items {
		volume, node := *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName
		switch {
		case a.DeletionTimestamp != nil:
			c.detach(volume, node)
			a.Finalizers = nil
			_, err = api.Update(ctx, &a, metav1.UpdateOptions{})
		case len(a.Finalizers) == 0:
			a.Finalizers = []string{"example.com/attacher"}
			_, err = api.Update(ctx, &a, metav1.UpdateOptions{})
		case !a.Status.Attached:
			c.attach(volume, node)
			a.Status.Attached = true
			_, err = api.UpdateStatus(ctx, &a, metav1.UpdateOptions{})
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (c *cluster) attach(volume, node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.attached[volume] == nil {
		c.attached[volume] = map[string]bool{}
	}
	c.attached[volume][node] = true
	if len(c.attached[volume]) > 1 {
		c.Errorf("volume %s is attached to %v", volume, c.attached[volume])
	}
}

func (c *cluster) detach(volume, node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.attached[volume], node)
	if c.mounted[volume][node] {
		c.Errorf("volume %s is detached from %s, where it is mounted", volume, node)
	}
}

// node creates a node.
func (c *cluster) node(name string) {
	c.Helper()
	node, err := c.Client().CoreV1().Nodes().Create(c.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}}, metav1.CreateOptions{})
	c.ok(err)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err = c.Client().CoreV1().Nodes().UpdateStatus(c.Context(), node, metav1.UpdateOptions{})
	c.ok(err)
}

// kubelet returns a function that mounts and unmounts the volumes of a node's pods, as a kubelet does: what it is about to mount it reports as in use
// first, and then looks whether it is attached.
func (c *cluster) kubelet(node string) func(context.Context) error {
	core := c.Client().CoreV1()
	return func(ctx context.Context) error {
		pods, err := core.Pods("default").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
		if err != nil {
			return err
		}
		wants := map[string]bool{}
		for _, pod := range pods.Items {
			for _, v := range pod.Spec.Volumes {
				wants[strings.Replace(v.PersistentVolumeClaim.ClaimName, "claim", "volume", 1)] = true
			}
		}
		c.mu.Lock()
		inUse := []string{}
		for volume, nodes := range c.mounted {
			if nodes[node] && !wants[volume] {
				delete(nodes, node)
			}
		}
		c.mu.Unlock()
		for volume := range wants {
			inUse = append(inUse, "kubernetes.io/csi/"+driver+"^"+volume)
		}
		slices.Sort(inUse)
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"volumesInUse": inUse}})
		c.ok(err)
		if _, err := core.Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
		is, err := core.Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, a := range is.Status.VolumesAttached {
			_, volume, _ := strings.Cut(string(a.Name), "^")
			if !wants[volume] {
				continue
			}
			if !c.attached[volume][node] {
				c.Errorf("volume %s is mounted on %s, to which it is not attached", volume, node)
			}
			if c.mounted[volume] == nil {
				c.mounted[volume] = map[string]bool{}
			}
			c.mounted[volume][node] = true
		}
		return nil
	}
}

// disk creates a volume that one node may write, and its claim, and waits until they are bound.
func (c *cluster) disk(n int) {
	c.Helper()
	once, gibibyte := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	name := fmt.Sprintf("volume-%d", n)
	_, err := c.Client().CoreV1().PersistentVolumes().Create(c.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: once, Capacity: gibibyte, PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}}}}, metav1.CreateOptions{})
	c.ok(err)
	claims := c.Client().CoreV1().PersistentVolumeClaims("default")
	claim, err := claims.Create(c.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("claim-%d", n)}, Spec: corev1.PersistentVolumeClaimSpec{
		VolumeName: name, AccessModes: once, Resources: corev1.VolumeResourceRequirements{Requests: gibibyte}}}, metav1.CreateOptions{})
	c.ok(err)
	controllertest.Eventually(c, func() string {
		claim, err = claims.Get(c.Context(), claim.Name, metav1.GetOptions{})
		c.ok(err)
		if claim.Status.Phase != corev1.ClaimBound {
			return claim.Name + " bound"
		}
		return ""
	})
}

func newPod(name, node string, disk int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprintf("claim-%d", disk)}}}}}}
}

// isMounted waits until a volume is mounted on a node, or on none.
func (c *cluster) isMounted(disk int, node string) {
	c.Helper()
	controllertest.Eventually(c, func() string {
		c.mu.Lock()
		defer c.mu.Unlock()
		nodes := c.mounted[fmt.Sprintf("volume-%d", disk)]
		if node == "" && len(nodes) > 0 || node != "" && !nodes[node] {
			return fmt.Sprintf("volume %d is mounted on %v, not on %q", disk, nodes, node)
		}
		return ""
	})
}

var none = int64(0)

func (c *cluster) remove(pod string) {
	c.Helper()
	c.ok(c.Client().CoreV1().Pods("default").Delete(c.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: &none}))
}

// A volume follows its pod from node to node, and waits for a pod that still has it.
func TestAttach(t *testing.T) {
	c := start(t)
	controllertest.Run(t, c.Server, attachdetach.New, persistentvolume.New)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, node := range []string{"node-1", "node-2"} {
		c.node(node)
		running.Go(func() { c.every(ctx, c.kubelet(node)) })
	}
	c.disk(1)
	pods := c.Client().CoreV1().Pods("default")
	_, err := pods.Create(t.Context(), newPod("first", "node-1", 1), metav1.CreateOptions{})
	c.ok(err)
	c.isMounted(1, "node-1")
	c.event("first", `Normal SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume "volume-1"`)
	_, err = pods.Create(t.Context(), newPod("second", "node-2", 1), metav1.CreateOptions{})
	c.ok(err)
	c.event("second", `Warning FailedAttachVolume: Waiting for detach for volume "volume-1" Volume is already used by pod(s) first`)
	c.remove("first")
	c.isMounted(1, "node-2")
	c.remove("second")
	c.isMounted(1, "")
	controllertest.Eventually(t, func() string {
		list, err := c.Client().StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
		c.ok(err)
		node, err := c.Client().CoreV1().Nodes().Get(t.Context(), "node-2", metav1.GetOptions{})
		c.ok(err)
		if len(list.Items) > 0 || len(node.Status.VolumesAttached) > 0 {
			return fmt.Sprintf("there are %d VolumeAttachments, and %v is attached", len(list.Items), node.Status.VolumesAttached)
		}
		return ""
	})
}

// event waits for an Event about a pod.
func (c *cluster) event(pod, want string) {
	c.Helper()
	controllertest.Eventually(c, func() string {
		list, err := c.Client().CoreV1().Events("default").List(c.Context(), metav1.ListOptions{})
		c.ok(err)
		var all []string
		for _, e := range list.Items {
			if e.InvolvedObject.Name == pod && e.Source.Component == "attachdetach-controller" {
				all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message)))
			}
		}
		if !slices.Contains(all, want) {
			return fmt.Sprintf("the event %s in %q", want, all)
		}
		return ""
	})
}

// Pods come and go on any node while the loop is restarted: a volume is never attached to two nodes, mounted where it is not attached, or detached
// where it is mounted; and in the end each pod that is alone with its volume has it.
func TestNeverTwoNodes(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.New(t), 0))
	const nodes, disks, rounds = 3, 3, 40
	c := start(t)
	controllertest.Run(t, c.Server, persistentvolume.New)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for n := range nodes {
		c.node(fmt.Sprintf("node-%d", n))
		running.Go(func() { c.every(ctx, c.kubelet(fmt.Sprintf("node-%d", n))) })
	}
	for disk := range disks {
		c.disk(disk)
	}
	stop := controllertest.Run(t, c.Server, attachdetach.New)
	pods := c.Client().CoreV1().Pods("default")
	var alive []string
	for round := range rounds {
		if len(alive) > 4 || len(alive) > 0 && random.IntN(3) == 0 {
			i := random.IntN(len(alive))
			c.remove(alive[i])
			alive = slices.Delete(alive, i, i+1)
		} else {
			name := fmt.Sprintf("pod-%d", round)
			_, err := pods.Create(t.Context(), newPod(name, fmt.Sprintf("node-%d", random.IntN(nodes)), random.IntN(disks)), metav1.CreateOptions{})
			c.ok(err)
			alive = append(alive, name)
		}
		if random.IntN(10) == 0 {
			stop()
			stop = controllertest.Run(t, c.Server, attachdetach.New)
		}
		time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
	}
	for _, name := range alive {
		c.remove(name)
	}
	for disk := range disks {
		node := fmt.Sprintf("node-%d", random.IntN(nodes))
		_, err := pods.Create(t.Context(), newPod(fmt.Sprintf("last-%d", disk), node, disk), metav1.CreateOptions{})
		c.ok(err)
		c.isMounted(disk, node)
	}
}
