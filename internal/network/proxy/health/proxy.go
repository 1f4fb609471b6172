package health

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// timeout is how long a change may wait to come into effect before the proxy is unhealthy.
const timeout = 2 * time.Minute

// toBeDeleted is the taint that an autoscaler puts on a node before it removes it.
const toBeDeleted = "ToBeDeletedByClusterAutoscaler"

// Proxy is the health of the proxy itself: it is healthy unless changes have waited for too long. The zero value is ready for use.
type Proxy struct {
	mu       sync.Mutex
	queued   time.Time // when the oldest change that is not in effect was queued; zero if there is none
	updated  time.Time // when changes last came into effect
	node     *corev1.Node
	families []corev1.IPFamily
}

// SetFamilies sets the address families that are served.
func (p *Proxy) SetFamilies(list ...corev1.IPFamily) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.families = list
}

// Queued records that there is a change to sync.
func (p *Proxy) Queued() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queued.IsZero() {
		p.queued = time.Now()
	}
}

// Updated records that all changes up to a time are in effect.
func (p *Proxy) Updated(upTo time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updated = time.Now()
	if !p.queued.After(upTo) {
		p.queued = time.Time{}
	}
}

// SetNode sets this node's Node; nil if it was deleted.
func (p *Proxy) SetNode(n *corev1.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.node = n
}

// Healthy reports whether changes come into effect.
func (p *Proxy) Healthy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.healthy(time.Now())
}

func (p *Proxy) healthy(now time.Time) bool {
	return p.updated.IsZero() || p.queued.IsZero() || now.Sub(p.queued) < timeout // it is healthy while it starts
}

func (p *Proxy) eligible() bool {
	if p.node == nil || !p.node.DeletionTimestamp.IsZero() {
		return false
	}
	for _, t := range p.node.Spec.Taints {
		if t.Key == toBeDeleted {
			return false
		}
	}
	return true
}

type status struct {
	LastUpdated  time.Time                        `json:"lastUpdated"`
	CurrentTime  time.Time                        `json:"currentTime"`
	NodeEligible *bool                            `json:"nodeEligible,omitempty"`
	Healthy      bool                             `json:"healthy"`
	Status       map[corev1.IPFamily]familyStatus `json:"status,omitempty"`
}

type familyStatus struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// Handler serves /healthz, which also fails when the node is about to be deleted, and /livez, which does not.
func (p *Proxy) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { p.serve(w, true) })
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { p.serve(w, false) })
	return mux
}

func (p *Proxy) serve(w http.ResponseWriter, withNode bool) {
	now := time.Now()
	p.mu.Lock()
	s := status{LastUpdated: p.updated, CurrentTime: now, Healthy: p.healthy(now), Status: map[corev1.IPFamily]familyStatus{}}
	healthy := s.Healthy
	if withNode {
		eligible := p.eligible()
		s.NodeEligible = &eligible
		healthy = healthy && eligible
	}
	for _, f := range p.families {
		if !p.updated.IsZero() {
			s.Status[f] = familyStatus{p.updated, s.Healthy}
		}
	}
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if healthy {
		s.LastUpdated = now // a healthy proxy is up to date
	} else {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(s)
}
