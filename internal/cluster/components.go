package cluster

import (
	"context"
	"fmt"
	"time"

	"skiff/internal/client"
	"skiff/internal/cluster/pki"
	"skiff/internal/controller"
	"skiff/internal/controller/all"
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
