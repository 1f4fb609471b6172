package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"skiff/internal/cluster/components"
	"skiff/internal/cluster/pki"
	"skiff/internal/hollow"
	"skiff/internal/scheduler"
	"skiff/internal/usage"
)

// startControllers starts the control loops, which run until ctx ends.
func (s *Server) startControllers(ctx context.Context) error {
	if len(s.config.Controllers) == 0 {
		return nil
	}
	config := s.config.Loops
	config.ServiceCIDRs, config.RootCA = s.config.ServiceCIDRs, s.certs.Bundle(pki.CA)
	if dns := dnsAddress(s.config.ServiceCIDRs); len(dns) > 0 {
		config.ClusterDNS, config.ClusterDNSPort, config.DisableClusterDNS = dns[0], dnsPort, s.config.Network.disabled(PartDNS)
	}
	config.DisableLocalStorage = slices.Contains(s.config.Disable, PartLocalStorage)
	if config.SigningCertFile == "" {
		config.SigningCertFile, config.SigningKeyFile = s.certs.Files(pki.CA)
	}
	config.ClusterDomain, config.APIServerHosts = clusterDomain, s.certs.APIServerHosts()
	var err error
	if config.ClusterConfig, config.ClusterInfo, err = s.bootstrapConfig(); err != nil {
		return err
	}
	m, err := components.Controllers(s.api, s.config.Controllers, config, s.config.Log)
	if err != nil {
		return err
	}
	s.wg.Go(func() { m.Run(ctx) })
	return nil
}

// startScheduler starts the scheduler, which runs until ctx ends.
func (s *Server) startScheduler(ctx context.Context) error {
	if slices.Contains(s.config.Disable, PartScheduler) {
		return nil
	}
	config, err := s.config.Scheduler.load()
	if err != nil {
		return err
	}
	sched, err := components.Scheduler(s.api, config, s.config.Log)
	if err != nil {
		return err
	}
	s.wg.Go(func() {
		if err := sched.Run(ctx); err != nil && ctx.Err() == nil {
			s.fail(fmt.Errorf("the scheduler failed: %w", err))
		}
	})
	return nil
}

// SchedulerConfig says where the scheduler's configuration is.
type SchedulerConfig struct {
	File       string // --config: a KubeSchedulerConfiguration
	PolicyFile string // --policy-config-file: a Policy, as kube-scheduler took before KubeSchedulerConfiguration
	Name       string // --scheduler-name: schedulerName of the pods that are scheduled, with a PolicyFile
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

// startHollowNodes starts hollow nodes, which only pretend to run pods, until ctx ends.
func (s *Server) startHollowNodes(ctx context.Context) error {
	if s.config.HollowNodes == 0 {
		return nil
	}
	nodes, err := components.HollowNodes(s.api, hollow.Options{Count: s.config.HollowNodes, ReadyDelay: s.config.HollowReadyDelay, Log: s.config.Log})
	if err != nil {
		return err
	}
	s.hollow.Store(nodes)
	s.wg.Go(func() {
		if err := nodes.Run(ctx); err != nil && ctx.Err() == nil {
			s.fail(fmt.Errorf("the hollow nodes failed: %w", err))
		}
	})
	return nil
}

// hollowUsage returns what a hollow node uses; nil for another node.
func (s *Server) hollowUsage(node string) *usage.Reading {
	if nodes := s.hollow.Load(); nodes != nil {
		return nodes.Usage(node)
	}
	return nil
}
