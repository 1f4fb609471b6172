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
	// publishTime bounds one request to the API.
	publishTime = 10 * time.Second
	// maxEvents is how many events wait to be sent; the kernel does not wait for the API.
	maxEvents = 100

	// reasonUp is that of the condition.
	reasonUp = "OverlayIsUp"
)

// publisher writes what others need to know into this node's Node: by which hardware address it is reached, and that the network is there. It tells of
// problems in events.
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

// set says how the Node is, for which the kernel is ready by now.
func (p *publisher) set(self *node) {
	p.mu.Lock()
	p.self = self
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// problem has an event made of a problem, unless too many wait already: it is in the log anyway.
func (p *publisher) problem(each problem) {
	select {
	case p.problems <- each:
	default:
	}
}

// run works until ctx ends.
func (p *publisher) run(ctx context.Context) {
	events := p.options.Client.RecorderAs(ctx, "skiff-overlay")
	wait := firstRetry
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
			p.options.Log.Warn("other nodes cannot learn how this one is reached; trying again", "in", wait, "error", err)
			again = time.After(wait)
			wait = min(2*wait, lastRetry)
			continue
		}
		wait = firstRetry
	}
}

// publish writes what is not so yet.
func (p *publisher) publish(ctx context.Context) error {
	p.mu.Lock()
	self := p.self
	p.mu.Unlock()
	if self == nil {
		return nil // nobody has made the Node yet
	}
	ctx, cancel := context.WithTimeout(ctx, publishTime)
	defer cancel()
	nodes := p.options.Client.Kubernetes().CoreV1().Nodes()
	var own mac
	var address any // null removes it
	if p.settings.device() == vxlanDevice {
		own = macOf(p.settings.name)
		address = own.String()
	}
	if self.backend != p.settings.speaks() || self.mac != own {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{BackendAnnotation: p.settings.speaks(), MACAnnotation: address}}})
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
