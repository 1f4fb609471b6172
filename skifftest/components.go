package skifftest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"skiff/internal/apiserver"
	"skiff/internal/apitest"
	"skiff/internal/client"
	"skiff/internal/cluster/components"
	"skiff/internal/controller"
	"skiff/internal/hollow"
	"skiff/internal/scheduler"
	"skiff/internal/usage"
)

// podAddresses is the cluster CIDR, from which nodes get their pod CIDRs.
const podAddresses = "10.42.0.0/16"

// WithControllers runs controllers beside the server: all, or those named, as in kube-controller-manager's --controllers.
// Each has its own service account. With the serviceaccount controller, pods have service accounts as in any cluster.
// The server is ready when the service account of the default namespace exists and no node has the taint of a new node.
func WithControllers(names ...string) Option {
	if len(names) == 0 {
		names = []string{"*"}
	}
	accounts := components.Chosen("serviceaccount-controller", names)
	run := apitest.WithComponent(func(p apitest.Place) (apitest.Component, error) {
		m, err := components.Controllers(p.API, names, controller.Config{AllocateNodeCIDRs: true, ClusterCIDRs: []string{podAddresses}, RootCA: p.CA}, p.Log)
		if err != nil {
			return apitest.Component{}, err
		}
		return apitest.Component{Name: "the control loops",
			Run: func(ctx context.Context) error {
				m.Run(ctx)
				return nil
			},
			Ready: m.WaitReady,
			Settled: func(ctx context.Context) error {
				c, err := client.ForServer(p.API, client.Identity{Component: "skifftest", User: "system:kube-controller-manager"})
				if err != nil {
					return err
				}
				api := c.Kubernetes().CoreV1()
				if components.Chosen("node-lifecycle-controller", names) {
					err = waitForNodes(ctx, api.Nodes())
				}
				if accounts && err == nil {
					err = waitForAccount(ctx, api.ServiceAccounts(corev1.NamespaceDefault))
				}
				return err
			}}, nil
	})
	return apitest.Together(run, apitest.WithServer(func(o *apiserver.Options) {
		if accounts {
			o.DisableAdmission = slices.DeleteFunc(o.DisableAdmission, func(name string) bool { return name == apitest.ServiceAccounts })
		}
		o.AggregateRoles = components.Chosen(components.Aggregation, names)
		o.CheckPolicyTypes = components.Chosen(components.PolicyStatus, names)
	}))
}

// waitForAccount returns when pods can be created in a namespace.
func waitForAccount(ctx context.Context, accounts typedcorev1.ServiceAccountInterface) error {
	w, err := accounts.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=default"})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Added {
			return nil
		}
	}
	return errors.Join(ctx.Err(), errors.New("the default service account was not created"))
}

// waitForNodes returns when pods can be scheduled to all nodes.
func waitForNodes(ctx context.Context, nodes typedcorev1.NodeInterface) error {
	list, err := nodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	fresh := map[string]bool{}
	for _, n := range list.Items {
		if isFresh(&n) {
			fresh[n.Name] = true
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	w, err := nodes.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if n, ok := e.Object.(*corev1.Node); ok && !isFresh(n) {
			if delete(fresh, n.Name); len(fresh) == 0 {
				return nil
			}
		}
	}
	return errors.Join(ctx.Err(), fmt.Errorf("nodes are still tainted as not ready: %v", slices.Sorted(maps.Keys(fresh))))
}

// isFresh reports whether a node has the taint that the API server gives to new nodes.
func isFresh(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
}

// WithScheduler runs the scheduler beside the server.
func WithScheduler() Option {
	return apitest.WithComponent(func(p apitest.Place) (apitest.Component, error) {
		config, err := scheduler.DefaultConfig()
		if err != nil {
			return apitest.Component{}, err
		}
		s, err := components.Scheduler(p.API, config, p.Log)
		if err != nil {
			return apitest.Component{}, err
		}
		return apitest.Component{Name: "the scheduler", Run: s.Run, Ready: s.WaitReady, Seen: func(ctx context.Context) error {
			c, err := client.ForServer(p.API, client.Identity{Component: "skifftest", User: "system:kube-scheduler"})
			if err != nil {
				return err
			}
			nodes, err := c.Kubernetes().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			return s.WaitForNodes(ctx, nodes.Items)
		}}, nil
	})
}

// WithHollowNodes runs hollow nodes beside the server, whose containers are simulated: pods that are bound to them are
// Running and Ready at once. The server is ready when they are, and serves what they use as metrics.k8s.io.
func WithHollowNodes(count int) Option {
	var running atomic.Pointer[hollow.Nodes]
	metrics := apitest.WithServer(func(o *apiserver.Options) {
		o.ResourceMetrics = true
		o.LocalUsage = func(node string) *usage.Reading {
			if nodes := running.Load(); nodes != nil {
				return nodes.Usage(node)
			}
			return nil
		}
	})
	return apitest.Together(metrics, apitest.WithComponent(func(p apitest.Place) (apitest.Component, error) {
		nodes, err := components.HollowNodes(p.API, hollow.Options{Count: count, Log: p.Log})
		if err != nil {
			return apitest.Component{}, err
		}
		running.Store(nodes)
		return apitest.Component{Name: "the hollow nodes", Run: nodes.Run, Ready: nodes.WaitReady}, nil
	}))
}
