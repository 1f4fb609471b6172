package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"skiff/internal/client"
	"skiff/internal/cluster/pki"
	"skiff/internal/controller"
	"skiff/internal/controller/all"
	"skiff/internal/hollow"
	"skiff/internal/scheduler"
)

// Components run in the server's process under identities of their own, and cannot tell.

// resync is how often loops go through everything again: a safety net that should never catch anything.
const resync = 30 * time.Minute

// inProcess is a component's client.
func (s *Server) inProcess(component, user string, groups ...string) (*client.Client, error) {
	return client.ForServer(s.api, client.Identity{Component: component, User: user, Groups: groups})
}

// asAccount is the client of a loop, which acts as a service account of kube-system.
func (s *Server) asAccount(account string) (*client.Client, error) {
	return s.inProcess(account, "system:serviceaccount:kube-system:"+account, "system:serviceaccounts", "system:serviceaccounts:kube-system")
}

// startControllers runs the control loops until ctx ends.
func (s *Server) startControllers(ctx context.Context) error {
	if len(s.config.Controllers) == 0 {
		return nil
	}
	c, err := s.inProcess("kube-controller-manager", "system:kube-controller-manager")
	if err != nil {
		return err
	}
	config := s.config.Loops
	config.ServiceCIDRs, config.RootCA = s.config.ServiceCIDRs, s.certs.Bundle(pki.CA)
	deps := controller.Deps{Informers: c.Informers(client.InformerOptions{Resync: resync}), Client: c, Log: s.config.Log, Config: config}
	loops, err := all.New(s.config.Controllers, deps)
	if err != nil {
		return fmt.Errorf("--controllers: %w", err)
	}
	m, err := controller.New(controller.Options{Client: s.asAccount, Informers: deps.Informers, Loops: loops, Log: s.config.Log})
	if err != nil {
		return err
	}
	s.wg.Go(func() { m.Run(ctx) })
	return nil
}

// startScheduler runs the scheduler until ctx ends.
func (s *Server) startScheduler(ctx context.Context) error {
	if slices.Contains(s.config.Disable, "scheduler") {
		return nil
	}
	c, err := s.inProcess("kube-scheduler", "system:kube-scheduler")
	if err != nil {
		return err
	}
	return s.runScheduler(ctx, c)
}

func (s *Server) runScheduler(ctx context.Context, c *client.Client) error {
	config, err := s.config.Scheduler.load()
	if err != nil {
		return err
	}
	scheduling, err := scheduler.New(scheduler.Options{Client: c, Config: config, Log: s.config.Log})
	if err != nil {
		return err
	}
	s.wg.Go(func() {
		if err := scheduling.Run(ctx); err != nil && ctx.Err() == nil {
			s.failed <- fmt.Errorf("the scheduler: %w", err)
		}
	})
	return nil
}

// SchedulerConfig is where the scheduler's configuration is.
type SchedulerConfig struct {
	File       string // --config: a KubeSchedulerConfiguration
	PolicyFile string // --policy-config-file: the form that came before
	Name       string // --scheduler-name: whose pods, with a PolicyFile
}

func (c SchedulerConfig) load() (scheduler.Config, error) {
	switch {
	case c.File != "" && c.PolicyFile != "":
		return scheduler.Config{}, errors.New("--config and --policy-config-file exclude each other")
	case c.File != "":
		return loadFile(c.File, scheduler.LoadConfig)
	case c.PolicyFile != "":
		return loadFile(c.PolicyFile, func(data []byte) (scheduler.Config, error) {
			return scheduler.LoadPolicy(cmp.Or(c.Name, "default-scheduler"), data)
		})
	}
	return scheduler.DefaultConfig()
}

func loadFile(file string, load func([]byte) (scheduler.Config, error)) (scheduler.Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return scheduler.Config{}, err
	}
	config, err := load(data)
	if err != nil {
		return config, fmt.Errorf("%s: %w", file, err)
	}
	return config, nil
}

// startHollowNodes runs nodes that only pretend to run pods, until ctx ends.
func (s *Server) startHollowNodes(ctx context.Context) error {
	if s.config.HollowNodes == 0 {
		return nil
	}
	// They share one watch on pods and nodes, which no single node may have.
	watch, err := s.inProcess("hollow-nodes", "system:kube-scheduler")
	if err != nil {
		return err
	}
	nodes, err := hollow.New(hollow.Options{Count: s.config.HollowNodes, Watch: watch, ReadyDelay: s.config.HollowReadyDelay, Log: s.config.Log,
		Client: func(node string) (*client.Client, error) {
			return s.inProcess("kubelet", "system:node:"+node, "system:nodes")
		}})
	if err != nil {
		return err
	}
	s.wg.Go(func() {
		if err := nodes.Run(ctx); err != nil && ctx.Err() == nil {
			s.failed <- fmt.Errorf("the hollow nodes: %w", err)
		}
	})
	return nil
}
