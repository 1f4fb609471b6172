package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/cluster/local"
)

// volumeChecker observes claims, volumes and attachments all the time, and notes what must never be.
type volumeChecker struct {
	api   kubernetes.Interface
	nodes map[string]local.State

	mu          sync.Mutex
	violations  []string
	claimOf     map[types.UID]types.UID        // of a PersistentVolume: the claim that it is, or was, bound to
	volumeOf    map[types.UID]string           // of a claim: the name of the PersistentVolume that it is, or was, bound to
	volumesFor  map[types.UID]types.UID        // of a claim: the PersistentVolume that is bound to it
	claimsNamed map[string]map[types.UID]bool  // the claims that there ever were by name
	attachedTo  map[string]map[string][]string // the nodes that a PersistentVolume has VolumeAttachments to, and their names
	suspicions  chan string                    // PersistentVolumes that seem to be attached to two nodes
	observed    int                            // changes, by its informers
}

func newVolumeChecker(api kubernetes.Interface, nodes map[string]local.State) *volumeChecker {
	return &volumeChecker{api: api, nodes: nodes, claimOf: map[types.UID]types.UID{}, volumeOf: map[types.UID]string{}, volumesFor: map[types.UID]types.UID{},
		claimsNamed: map[string]map[types.UID]bool{}, attachedTo: map[string]map[string][]string{}, suspicions: make(chan string, 100)}
}

// run observes until ctx ends.
func (c *volumeChecker) run(ctx context.Context, t testing.TB) {
	factory := informers.NewSharedInformerFactory(c.api, 0)
	for _, i := range []cache.SharedIndexInformer{factory.Core().V1().PersistentVolumeClaims().Informer(), factory.Core().V1().PersistentVolumes().Informer(),
		factory.Storage().V1().VolumeAttachments().Informer()} {
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: c.observe, UpdateFunc: func(_, now any) { c.observe(now) }, DeleteFunc: c.gone}); err != nil {
			t.Error(err)
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		c.lookAtMounts()
		select {
		case volume := <-c.suspicions:
			c.confirm(ctx, volume)
		default:
		}
	}
}

func (c *volumeChecker) violation(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(format, args...)
}

func (c *volumeChecker) note(format string, args ...any) {
	if len(c.violations) < 100 {
		c.violations = append(c.violations, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// once notes what a thing is bound to, of which there may be one in its life.
func once[K comparable, V comparable](c *volumeChecker, all map[K]V, key K, value V, what string) {
	if was, there := all[key]; there && was != value {
		c.note("%s is bound to %v and was bound to %v", what, value, was)
		return
	}
	all[key] = value
}

// observe takes what an informer says.
func (c *volumeChecker) observe(o any) {
	c.mu.Lock()
	c.observed++
	c.mu.Unlock()
	c.seen(o)
}

// seen notes what an object is bound or attached to.
func (c *volumeChecker) seen(o any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o := o.(type) {
	case *corev1.PersistentVolume:
		if ref := o.Spec.ClaimRef; ref != nil && ref.UID != "" {
			once(c, c.claimOf, o.UID, ref.UID, "PersistentVolume "+o.Name)
			once(c, c.volumesFor, ref.UID, o.UID, "by its PersistentVolume claim "+ref.Name)
		}
	case *corev1.PersistentVolumeClaim:
		if c.claimsNamed[o.Name] == nil {
			c.claimsNamed[o.Name] = map[types.UID]bool{}
		}
		c.claimsNamed[o.Name][o.UID] = true
		if o.Spec.VolumeName != "" {
			once(c, c.volumeOf, o.UID, o.Spec.VolumeName, "claim "+o.Name)
		}
		if o.Status.Phase == corev1.ClaimLost {
			c.note("claim %s has lost its volume", o.Name)
		}
	case *storagev1.VolumeAttachment:
		volume := *o.Spec.Source.PersistentVolumeName
		if c.attachedTo[volume] == nil {
			c.attachedTo[volume] = map[string][]string{}
		}
		c.attachedTo[volume][o.Spec.NodeName] = []string{o.Name}
		if len(c.attachedTo[volume]) > 1 {
			select {
			case c.suspicions <- volume:
			default:
			}
		}
	}
}

func (c *volumeChecker) gone(o any) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	if a, ok := o.(*storagev1.VolumeAttachment); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.attachedTo[*a.Spec.Source.PersistentVolumeName], a.Spec.NodeName)
	}
}

// confirm notes that a volume is attached to two nodes if the API says so: an informer whose watch was broken off tells of what is new before it tells of what
// is gone.
func (c *volumeChecker) confirm(ctx context.Context, volume string) {
	ctx, cancel := briefly(ctx)
	defer cancel()
	list, err := c.api.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	var nodes []string
	for _, a := range list.Items {
		if *a.Spec.Source.PersistentVolumeName == volume {
			nodes = append(nodes, a.Spec.NodeName)
		}
	}
	if len(nodes) > 1 {
		c.violation("PersistentVolume %s is attached to the nodes %v", volume, nodes)
	}
}

// lookAtMounts notes volumes of the driver that are mounted in two nodes: in one of them before and after it was seen in the other.
func (c *volumeChecker) lookAtMounts() {
	var names []string
	for name := range c.nodes {
		names = append(names, name)
	}
	for i, one := range names {
		for _, other := range names[i+1:] {
			before, there, after := mountedVolumes(c.nodes[one].InitPID), mountedVolumes(c.nodes[other].InitPID), map[string]string(nil)
			for id, at := range there {
				if before[id] == "" {
					continue
				}
				if after == nil {
					after = mountedVolumes(c.nodes[one].InitPID)
				}
				if after[id] != "" {
					c.violation("volume %s is mounted in %s at %s and in %s at %s", id, one, after[id], other, at)
				}
			}
		}
	}
}

// check fails the test if there were violations, or if what pods have reported of their sequences is not whole.
func (c *volumeChecker) check(t testing.TB, reports string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.violations {
		t.Error(v)
	}
	c.violations = nil
	files, err := filepath.Glob(filepath.Join(reports, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		volumes, err := checkReport(string(data))
		if err != nil {
			t.Errorf("the sequence of pod %s: %v", name, err)
		}
		if claims := c.claimsNamed["data-"+name]; volumes > len(claims) {
			t.Errorf("pod %s has found %d volumes to be empty, and had %d claims", name, volumes, len(claims))
		}
	}
}

// checkReport checks what the pods of a name have reported, one after the other, and returns how many volumes were empty at first:
//
//	start PROCESS VOLUME N   a process has found a whole sequence up to N in a volume
//	ack PROCESS N            it has written N, which is on the disk
//	broken … and failed …    it has found a sequence that is not whole, or could not write
func checkReport(report string) (volumes int, err error) {
	var process, volume string
	last := map[string]int{} // by volume
	for i, line := range strings.Split(strings.TrimSuffix(report, "\n"), "\n") {
		var who, what string
		var n int
		if _, err := fmt.Sscanf(line, "start %s %s %d", &who, &what, &n); err == nil {
			acknowledged, known := last[what]
			if n < acknowledged {
				return volumes, fmt.Errorf("line %d: %q, and %d was acknowledged", i+1, line, acknowledged)
			}
			if !known {
				volumes++
			}
			process, volume = who, what
			last[volume] = n
			continue
		}
		if _, err := fmt.Sscanf(line, "ack %s %d", &who, &n); err != nil {
			return volumes, fmt.Errorf("line %d: %q", i+1, line)
		}
		if who != process {
			return volumes, fmt.Errorf("line %d: %q, while %s writes", i+1, line, process)
		}
		if n != last[volume]+1 {
			return volumes, fmt.Errorf("line %d: %q after %d", i+1, line, last[volume])
		}
		last[volume] = n
	}
	return volumes, nil
}
