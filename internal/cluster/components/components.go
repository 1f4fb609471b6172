package components

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/all"
	"skiff/internal/hollow"
	"skiff/internal/scheduler"
)

// Resync is the resync period of control loops: a safety net that should never be needed.
const Resync = 30 * time.Minute

// Aggregation is the name of the control loop that runs inside the API server.
const Aggregation = all.Aggregation

// PolicyStatus is the name of another such loop.
const PolicyStatus = all.PolicyStatus

// Chosen reports whether the values of --controllers turn a control loop on.
func Chosen(name string, controllers []string) bool { return all.On(name, controllers) }

// Controllers returns the control loops that the values of --controllers turn on. Each acts as its service account of kube-system.
func Controllers(server client.Source, chosen []string, config controller.Config, log *slog.Logger) (*controller.Manager, error) {
	c, err := client.ForServer(server, client.Identity{Component: "kube-controller-manager", User: "system:kube-controller-manager"})
	if err != nil {
		return nil, err
	}
	if s, ok := server.(interface {
		LegacyTokens() func(*corev1.ServiceAccount, *corev1.Secret) (string, error)
	}); ok && config.LegacyToken == nil {
		config.LegacyToken = s.LegacyTokens()
	}
	metrics := controller.NewMetrics()
	deps := controller.Deps{Informers: c.Informers(client.InformerOptions{Resync: Resync}), Client: c, Log: log, Config: config, Metrics: metrics}
	loops, err := all.New(chosen, deps)
	if err != nil {
		return nil, fmt.Errorf("--controllers: %w", err)
	}
	addMetrics(server, metrics)
	return controller.New(controller.Options{Informers: deps.Informers, Loops: loops, Log: log, Metrics: metrics,
		Client: func(account string) (*client.Client, error) {
			return client.ForServer(server, client.Identity{Component: account, Program: "kube-controller-manager", User: "system:serviceaccount:kube-system:" + account,
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"}})
		}})
}

// addMetrics adds metrics to those that the server serves, if it can serve those of others.
func addMetrics(server client.Source, metrics prometheus.Gatherer) {
	if s, ok := server.(interface{ AddMetrics(prometheus.Gatherer) }); ok {
		s.AddMetrics(metrics)
	}
}

// Scheduler returns the scheduler.
func Scheduler(server client.Source, config scheduler.Config, log *slog.Logger) (*scheduler.Scheduler, error) {
	c, err := client.ForServer(server, client.Identity{Component: "kube-scheduler", User: "system:kube-scheduler"})
	if err != nil {
		return nil, err
	}
	s, err := scheduler.New(scheduler.Options{Client: c, Config: config, Log: log})
	if err != nil {
		return nil, err
	}
	addMetrics(server, s.Metrics())
	return s, nil
}

// HollowNodes returns nodes that only pretend to run pods. Each acts as a node of its name.
func HollowNodes(server client.Source, o hollow.Options) (*hollow.Nodes, error) {
	// Hollow nodes share one watch on pods and nodes, for which no node has permission.
	var err error
	if o.Watch, err = client.ForServer(server, client.Identity{Component: "hollow-nodes", User: "system:kube-scheduler"}); err != nil {
		return nil, err
	}
	o.Client = func(node string) (*client.Client, error) {
		return client.ForServer(server, client.Identity{Component: "kubelet", User: "system:node:" + node, Groups: []string{"system:nodes"}})
	}
	return hollow.New(o)
}
