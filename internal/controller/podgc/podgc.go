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
	// every is how often all pods are checked.
	every = 20 * time.Second
	// quarantine is how long a node must have been missing from the cache before the API server is asked whether it exists.
	quarantine = 40 * time.Second
	// defaultThreshold is how many terminated pods are kept if the configuration does not say.
	defaultThreshold = 12500
	// parallelDeletes is how many pods are deleted at a time.
	parallelDeletes = 20
)

// New returns the loop. It reconciles no keys: it checks all pods from time to time.
func New(deps controller.Deps) controller.Loop {
	pods, nodes := deps.Informers.Core().V1().Pods(), deps.Informers.Core().V1().Nodes()
	c := &collector{pods: pods.Lister(), nodes: nodes.Lister(), log: deps.Log, threshold: deps.Config.TerminatedPodGCThreshold,
		every: every, quarantine: quarantine, missingSince: map[string]time.Time{}}
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

	threshold         int // terminated pods that are kept; all of them if negative
	every, quarantine time.Duration
	// missingSince holds since when a node that pods are bound to has not been in the cache. It is bounded by the number of pods.
	missingSince map[string]time.Time
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

// collect checks all pods once.
func (c *collector) collect(ctx context.Context, do controller.Do, now time.Time) {
	seen := c.observe()
	seen.missingNodes = c.confirmMissing(ctx, do, c.due(seen, now))
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallelDeletes)
	for _, d := range decide(seen, now) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := do(client.Because(ctx, d.pod), d.actions...); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
				c.log.Warn("failed to delete pod; retrying later", "pod", controller.KeyOf(d.pod), "why", d.reason, "error", err)
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

// due returns the nodes that have been missing for the quarantine, and restarts their quarantine.
func (c *collector) due(seen observed, now time.Time) []string {
	before := c.missingSince
	c.missingSince = map[string]time.Time{}
	var due []string
	for _, pod := range seen.pods {
		name := pod.Spec.NodeName
		if name == "" || seen.nodes[name] != nil {
			continue
		}
		if _, counted := c.missingSince[name]; counted {
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
		c.missingSince[name] = since
	}
	return due
}

// confirmMissing asks the API server which nodes do not exist: the cache may lag behind a new node.
func (c *collector) confirmMissing(ctx context.Context, do controller.Do, names []string) map[string]bool {
	missing := map[string]bool{}
	for _, name := range names {
		err := do(ctx, controller.Call("get Node "+name, func(ctx context.Context, api *client.Client) error {
			_, err := api.Kubernetes().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			return err
		}))
		switch {
		case apierrors.IsNotFound(err):
			missing[name] = true
		case err != nil && ctx.Err() == nil:
			c.log.Warn("failed to check whether a node exists; retrying later", "node", name, "error", err)
		}
	}
	return missing
}
