package overlay

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// publishTimeout bounds one publish with all its requests.
	publishTimeout = 10 * time.Second
	// maxEvents bounds the Events that wait to be sent, so that programming the kernel does not wait for the API.
	maxEvents = 100

	// reasonUp is the reason of the NetworkUnavailable condition.
	reasonUp = "OverlayIsUp"
)

// publisher writes into this node's Node what other nodes need: its backend and hardware address, and the condition that its network is
// available. It publishes problems as Events.
type publisher struct {
	options  Options
	settings settings
	wake     chan struct{}
	problems chan problem

	mu   sync.Mutex
	self *node
}

func newPublisher(o Options, s settings) *publisher {
	return &publisher{options: o, settings: s, wake: make(chan struct{}, 1), problems: make(chan problem, maxEvents)}
}

// set wakes the publisher. self is the observed Node for which the kernel is programmed by now.
func (p *publisher) set(self *node) {
	p.mu.Lock()
	p.self = self
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// problem queues an Event about a problem, unless too many wait already: the problem is logged anyway.
func (p *publisher) problem(each problem) {
	select {
	case p.problems <- each:
	default:
	}
}

// run publishes until ctx ends, with a back-off after failures.
func (p *publisher) run(ctx context.Context) {
	events := p.options.Client.RecorderAs(ctx, "skiff-overlay")
	wait := minRetryInterval
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case each := <-p.problems:
			about := &corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: each.node, UID: types.UID(each.node)}
			events.Event(about, corev1.EventTypeWarning, each.reason, each.text)
			continue
		case <-p.wake:
		case <-again:
		}
		again = nil
		if err := p.publish(ctx); err != nil && ctx.Err() == nil {
			p.options.Log.Warn("failed to publish this node's overlay address in its Node, retrying", "in", wait, "error", err)
			again = time.After(wait)
			wait = min(2*wait, maxRetryInterval)
			continue
		}
		wait = minRetryInterval
	}
}

// publish patches the annotations and the condition of the Node if they differ.
func (p *publisher) publish(ctx context.Context) error {
	p.mu.Lock()
	self := p.self
	p.mu.Unlock()
	if self == nil {
		return nil // the Node does not exist yet
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	nodes := p.options.Client.Kubernetes().CoreV1().Nodes()
	var nodeMAC mac
	var annotation any // null removes the annotation
	if p.settings.device() == vxlanDevice {
		nodeMAC = macOf(p.settings.name)
		annotation = nodeMAC.String()
	}
	if self.backend != p.settings.peerBackend() || self.mac != nodeMAC {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{BackendAnnotation: p.settings.peerBackend(), MACAnnotation: annotation}}})
		if err != nil {
			return err
		}
		if _, err := nodes.Patch(ctx, self.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	if self.network == corev1.ConditionFalse {
		return nil
	}
	now := metav1.Now()
	condition := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: reasonUp, Message: "skiff connects this node's pods with others",
		LastHeartbeatTime: now, LastTransitionTime: now}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{condition}}})
	if err != nil {
		return err
	}
	_, err = nodes.Patch(ctx, self.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
