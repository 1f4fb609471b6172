// Package components makes the parts of a cluster that run in the API server's process: the control loops, the scheduler and hollow nodes.
// Each has an identity of its own, with the rights it would have in a process of its own, and cannot tell the difference.
package components

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/all"
	"skiff/internal/hollow"
	"skiff/internal/scheduler"
)

// Resync is how often loops go through everything again: a safety net that should never catch anything.
const Resync = 30 * time.Minute

// Aggregation is the loop that runs inside the API server.
const Aggregation = all.Aggregation

// Chosen says whether --controllers chooses a loop.
func Chosen(name string, controllers []string) bool { return all.On(name, controllers) }

// Controllers are the control loops that --controllers chooses. Each acts as its service account of kube-system.
func Controllers(server client.Source, chosen []string, config controller.Config, log *slog.Logger) (*controller.Manager, error) {
	c, err := client.ForServer(server, client.Identity{Component: "kube-controller-manager", User: "system:kube-controller-manager"})
	if err != nil {
		return nil, err
	}
	metrics := controller.NewMetrics()
	deps := controller.Deps{Informers: c.Informers(client.InformerOptions{Resync: Resync}), Client: c, Log: log, Config: config, Metrics: metrics}
	loops, err := all.New(chosen, deps)
	if err != nil {
		return nil, fmt.Errorf("--controllers: %w", err)
	}
	show(server, metrics)
	return controller.New(controller.Options{Informers: deps.Informers, Loops: loops, Log: log, Metrics: metrics,
		Client: func(account string) (*client.Client, error) {
			return client.ForServer(server, client.Identity{Component: account, Program: "kube-controller-manager", User: "system:serviceaccount:kube-system:" + account,
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"}})
		}})
}

// show has a server that shows metrics of others besides its own show these.
func show(server client.Source, metrics prometheus.Gatherer) {
	if s, ok := server.(interface{ AddMetrics(prometheus.Gatherer) }); ok {
		s.AddMetrics(metrics)
	}
}

// Scheduler is the scheduler.
func Scheduler(server client.Source, config scheduler.Config, log *slog.Logger) (*scheduler.Scheduler, error) {
	c, err := client.ForServer(server, client.Identity{Component: "kube-scheduler", User: "system:kube-scheduler"})
	if err != nil {
		return nil, err
	}
	s, err := scheduler.New(scheduler.Options{Client: c, Config: config, Log: log})
	if err != nil {
		return nil, err
	}
	show(server, s.Metrics())
	return s, nil
}

// HollowNodes are nodes that only pretend to run pods. Each has the rights of a node; o says what they are like.
func HollowNodes(server client.Source, o hollow.Options) (*hollow.Nodes, error) {
	// They share one watch on pods and nodes, which no single node may have.
	var err error
	if o.Watch, err = client.ForServer(server, client.Identity{Component: "hollow-nodes", User: "system:kube-scheduler"}); err != nil {
		return nil, err
	}
	o.Client = func(node string) (*client.Client, error) {
		return client.ForServer(server, client.Identity{Component: "kubelet", User: "system:node:" + node, Groups: []string{"system:nodes"}})
	}
	return hollow.New(o)
}
