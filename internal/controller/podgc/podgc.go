// Package podgc deletes pods that nobody else would: finished ones when there are too many, those of nodes that no longer exist or are out
// of service, and those that are ending without ever having had a node.
//
// It goes through all pods from time to time, because most of its reasons are not changes of a pod.
package podgc

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"skiff/internal/client"
	"skiff/internal/controller"
)

const (
	// every is how often pods are gone through.
	every = 20 * time.Second
	// quarantine is how long a node must have been unknown before the API is asked whether it exists.
	quarantine = 40 * time.Second
	// defaultThreshold is how many finished pods are kept if the configuration does not say.
	defaultThreshold = 12500
	// atATime is how many pods are deleted at once.
	atATime = 20
)

// New returns the loop. It decides about no keys.
func New(deps controller.Deps) controller.Loop {
	pods, nodes := deps.Informers.Core().V1().Pods(), deps.Informers.Core().V1().Nodes()
	c := &collector{pods: pods.Lister(), nodes: nodes.Lister(), log: deps.Log, threshold: deps.Config.TerminatedPodGCThreshold,
		every: every, quarantine: quarantine, unknown: map[string]time.Time{}}
	if c.threshold == 0 {
		c.threshold = defaultThreshold
	}
	none := func(_, _ metav1.Object) []controller.Key { return nil }
	return controller.Loop{
		Name:           "pod-garbage-collector-controller",
		ServiceAccount: "pod-garbage-collector",
		QueueName:      "orphaned_pods_nodes",
		Workers:        1,
		Watch: []controller.Watch{
			{Informer: pods.Informer(), Type: &corev1.Pod{}, Keys: none},
			{Informer: nodes.Informer(), Type: &corev1.Node{}, Keys: none},
		},
		Run: c.run,
	}
}

type collector struct {
	pods  corelisters.PodLister
	nodes corelisters.NodeLister
	log   *slog.Logger

	threshold         int // finished pods are all kept if it is negative
	every, quarantine time.Duration
	// unknown says since when a node that pods are bound to has not been in the cache. It is bounded by the pods.
	unknown map[string]time.Time
}

func (c *collector) run(ctx context.Context, do controller.Do) {
	ticker := time.NewTicker(c.every)
	defer ticker.Stop()
	for {
		c.collect(ctx, do, time.Now())
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// collect goes through all pods once.
func (c *collector) collect(ctx context.Context, do controller.Do, now time.Time) {
	seen := c.observe()
	seen.gone = c.confirm(ctx, do, c.due(seen, now))
	var wg sync.WaitGroup
	places := make(chan struct{}, atATime)
	for _, doomed := range decide(seen, now) {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			if err := do(client.Because(ctx, doomed.pod), doomed.actions...); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
				c.log.Warn("a pod could not be deleted and is tried again later", "pod", controller.KeyOf(doomed.pod), "why", doomed.why, "error", err)
			}
		})
	}
	wg.Wait()
}

func (c *collector) observe() observed {
	pods, _ := c.pods.List(labels.Everything()) // a cache does not fail
	nodes, _ := c.nodes.List(labels.Everything())
	seen := observed{pods: pods, nodes: make(map[string]*corev1.Node, len(nodes)), threshold: c.threshold}
	for _, node := range nodes {
		seen.nodes[node.Name] = node
	}
	return seen
}

// due returns the nodes that have been unknown for long enough to be asked about. Their time begins anew.
func (c *collector) due(seen observed, now time.Time) []string {
	before := c.unknown
	c.unknown = map[string]time.Time{}
	var due []string
	for _, pod := range seen.pods {
		name := pod.Spec.NodeName
		if name == "" || seen.nodes[name] != nil {
			continue
		}
		if _, counted := c.unknown[name]; counted {
			continue
		}
		since, known := before[name]
		if !known {
			since = now
		}
		if now.Sub(since) >= c.quarantine {
			due = append(due, name)
			since = now
		}
		c.unknown[name] = since
	}
	return due
}

// confirm asks the API which nodes do not exist: the cache may lag behind a node that has just come.
func (c *collector) confirm(ctx context.Context, do controller.Do, names []string) map[string]bool {
	gone := map[string]bool{}
	for _, name := range names {
		err := do(ctx, controller.Call("get Node "+name, func(ctx context.Context, api *client.Client) error {
			_, err := api.Kubernetes().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			return err
		}))
		switch {
		case apierrors.IsNotFound(err):
			gone[name] = true
		case err != nil && ctx.Err() == nil:
			c.log.Warn("whether a node still exists is not known, it is asked again later", "node", name, "error", err)
		}
	}
	return gone
}
