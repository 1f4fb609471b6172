package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// migratedPlugins are the in-tree volume plugins whose volumes CSI drivers serve, as every kubelet of this version says.
var migratedPlugins = []string{"kubernetes.io/aws-ebs", "kubernetes.io/azure-disk", "kubernetes.io/azure-file", "kubernetes.io/cinder", "kubernetes.io/gce-pd",
	"kubernetes.io/portworx-volume", "kubernetes.io/vsphere-volume"}

// nodeIDs is the annotation of a Node with what each driver calls it.
const nodeIDs = "csi.volume.kubernetes.io/nodeid"

// How long is waited before a write to the API or a call to a driver is tried again; the wait doubles each time.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// NodeInfo keeps what the API says of the drivers of this node: the CSINode, and an annotation and labels of the Node.
type NodeInfo struct {
	Client   kubernetes.Interface
	NodeName string
	Log      *slog.Logger

	mu sync.Mutex // held while objects are written
}

// Start creates the CSINode if there is none, and registers the drivers that run in this process. It tries until that succeeds or ctx ends.
func (p *Plugin) Start(ctx context.Context, info *NodeInfo) {
	retry(ctx, info.Log, "failed to create the node's CSINode; retrying", func() error { return info.update(ctx, func(*storagev1.CSINode) bool { return false }) })
	for _, name := range p.drivers.names() {
		retry(ctx, info.Log, "failed to register the CSI driver "+name+"; retrying", func() error { return p.register(ctx, info, name) })
	}
}

// retry calls do until it succeeds or ctx ends.
func retry(ctx context.Context, log *slog.Logger, what string, do func() error) {
	for wait := firstRetry; ctx.Err() == nil; wait = min(2*wait, lastRetry) {
		err := do()
		if err == nil {
			return
		}
		if wait > time.Second && ctx.Err() == nil {
			log.Warn(what, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// register asks a driver what it calls this node, and writes that down.
func (p *Plugin) register(ctx context.Context, info *NodeInfo, name string) error {
	d, err := p.drivers.get(name)
	if err != nil {
		return err
	}
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := d.node.NodeGetInfo(calling, &csi.NodeGetInfoRequest{})
	if err != nil {
		return err
	}
	return info.install(ctx, name, answer)
}

// install adds a driver to the Node and the CSINode.
func (n *NodeInfo) install(ctx context.Context, name string, info *csi.NodeGetInfoResponse) error {
	if info.GetNodeId() == "" {
		return errors.New("error adding CSI driver node info: driverNodeID must not be empty")
	}
	topology := info.GetAccessibleTopology().GetSegments()
	if err := n.patchNode(ctx, name, info.GetNodeId(), topology); err != nil {
		return fmt.Errorf("error updating Node object with CSI driver node info: %w", err)
	}
	added := storagev1.CSINodeDriver{Name: name, NodeID: info.GetNodeId(), TopologyKeys: slices.Sorted(maps.Keys(topology))}
	if most := info.GetMaxVolumesPerNode(); most > 0 {
		count := int32(min(most, math.MaxInt32))
		added.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	return n.update(ctx, func(c *storagev1.CSINode) bool {
		i := slices.IndexFunc(c.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == name })
		if i >= 0 && sameDriver(&c.Spec.Drivers[i], &added) {
			return false
		}
		c.Spec.Drivers = append(without(c.Spec.Drivers, name), added)
		return true
	})
}

// uninstall removes a driver from the CSINode and the Node.
func (n *NodeInfo) uninstall(ctx context.Context, name string) error {
	err := n.update(ctx, func(c *storagev1.CSINode) bool {
		before := len(c.Spec.Drivers)
		c.Spec.Drivers = without(c.Spec.Drivers, name)
		return len(c.Spec.Drivers) != before
	})
	if err != nil {
		return err
	}
	return n.patchNode(ctx, name, "", nil)
}

func sameDriver(a, b *storagev1.CSINodeDriver) bool {
	count := func(d *storagev1.CSINodeDriver) int32 {
		if d.Allocatable == nil || d.Allocatable.Count == nil {
			return -1
		}
		return *d.Allocatable.Count
	}
	return a.NodeID == b.NodeID && slices.Equal(slices.Sorted(slices.Values(a.TopologyKeys)), b.TopologyKeys) && count(a) == count(b)
}

func without(list []storagev1.CSINodeDriver, name string) []storagev1.CSINodeDriver {
	return slices.DeleteFunc(slices.Clone(list), func(d storagev1.CSINodeDriver) bool { return d.Name == name })
}

// update changes the CSINode, which it creates if there is none. One that belongs to an earlier Node of this name is replaced.
func (n *NodeInfo) update(ctx context.Context, change func(*storagev1.CSINode) bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	node, err := n.Client.CoreV1().Nodes().Get(ctx, n.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	objects := n.Client.StorageV1().CSINodes()
	c, err := objects.Get(ctx, n.NodeName, metav1.GetOptions{})
	if err == nil && !slices.ContainsFunc(c.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "Node" && r.UID == node.UID }) {
		if err := objects.Delete(ctx, n.NodeName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		err = apierrors.NewNotFound(storagev1.Resource("csinodes"), n.NodeName)
		c = nil
	} else if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if c == nil || err != nil {
		c = &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.NodeName, Annotations: map[string]string{corev1.MigratedPluginsAnnotationKey: strings.Join(migratedPlugins, ",")},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.NodeName, UID: node.UID}}}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}}}
		change(c)
		_, err = objects.Create(ctx, c, metav1.CreateOptions{})
		return err
	}
	c = c.DeepCopy()
	if !change(c) {
		return nil
	}
	_, err = objects.Update(ctx, c, metav1.UpdateOptions{})
	return err
}

// patchNode sets what a driver calls the node, or removes it if id is empty, and the labels of its topology.
func (n *NodeInfo) patchNode(ctx context.Context, driver, id string, topology map[string]string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	nodes := n.Client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, n.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	ids := map[string]string{}
	if text := node.Annotations[nodeIDs]; text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil {
			return fmt.Errorf("failed to parse node's %q annotation value (%q) err=%w", nodeIDs, text, err)
		}
	}
	labels := map[string]string{}
	for key, value := range topology {
		if now, ok := node.Labels[key]; ok && now != value {
			return fmt.Errorf("detected topology value collision: driver reported %q:%q but existing label is %q:%q", key, value, key, now)
		} else if !ok {
			labels[key] = value
		}
	}
	if ids[driver] == id && len(labels) == 0 {
		return nil
	}
	ids[driver] = id
	if id == "" {
		delete(ids, driver)
	}
	var annotation any // null removes it
	if len(ids) > 0 {
		text, err := json.Marshal(ids)
		if err != nil {
			return err
		}
		annotation = string(text)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{nodeIDs: annotation}, "labels": labels,
		"resourceVersion": node.ResourceVersion}})
	if err != nil {
		return err
	}
	_, err = nodes.Patch(ctx, n.NodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
