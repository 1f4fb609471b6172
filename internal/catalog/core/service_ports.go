package core

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PortPool allocates node ports. The implementation must release what a request took if the request fails, and release what
// it released only once it succeeds.
type PortPool interface {
	Take(port int32) error
	TakeAny() (int32, error)
	Release(port int32)
}

// AllocateNodePorts takes the node ports that a service needs and releases those it no longer does; old is nil on create.
// A *field.Error makes the request invalid; any other error is the server's failure.
func AllocateNodePorts(new, old *corev1.Service, pool PortPool) error {
	var had []int32
	if old != nil {
		had = nodePorts(old)
	}
	if hasNodePorts(new) {
		take := takeNodePorts
		if old != nil {
			take = updateNodePorts
		}
		if err := take(new, had, pool); err != nil {
			return err
		}
	}
	if old != nil && hasNodePorts(old) {
		has := nodePorts(new)
		for _, port := range had {
			if !hasNodePorts(new) || !slices.Contains(has, port) {
				pool.Release(port)
			}
		}
	}
	return allocateHealthCheckPort(new, old, pool)
}

// takeNodePorts allocates the node ports of a new service. Ports of the same number, as DNS has for UDP and TCP, share a node port unless the client
// sets another.
func takeNodePorts(s *corev1.Service, _ []int32, pool PortPool) error {
	shared := map[int32]int32{}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.NodePort == 0 && !NeedsNodePort(s) {
			continue
		}
		if shared[p.Port] == 0 {
			port := requestedNodePort(s.Spec.Ports, p.Port)
			if err := takeOne(pool, i, &port); err != nil {
				return err
			}
			p.NodePort, shared[p.Port] = port, port
			continue
		}
		if p.NodePort == 0 {
			p.NodePort = shared[p.Port]
		} else if p.NodePort != shared[p.Port] {
			if err := takeOne(pool, i, &p.NodePort); err != nil {
				return err
			}
		}
	}
	return nil
}

func updateNodePorts(s *corev1.Service, had []int32, pool PortPool) error {
	type key struct {
		protocol corev1.Protocol
		port     int32
	}
	seen := map[key]bool{}
	taken := slices.Clone(had)
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.NodePort == 0 && !NeedsNodePort(s) {
			continue
		}
		if p.NodePort == 0 || !slices.Contains(taken, p.NodePort) {
			if err := takeOne(pool, i, &p.NodePort); err != nil {
				return err
			}
			taken = append(taken, p.NodePort)
		}
		k := key{p.Protocol, p.NodePort}
		if seen[k] {
			return fmt.Errorf("duplicate nodePort: %v", k)
		}
		seen[k] = true
	}
	return nil
}

func requestedNodePort(ports []corev1.ServicePort, number int32) int32 {
	for _, p := range ports {
		if p.Port == number && p.NodePort != 0 {
			return p.NodePort
		}
	}
	return 0
}

// takeOne takes the given node port, or any if it is zero, for the i-th port of a service.
func takeOne(pool PortPool, i int, port *int32) error {
	if *port != 0 {
		if err := pool.Take(*port); err != nil {
			return field.Invalid(field.NewPath("spec", "ports").Index(i).Child("nodePort"), *port, err.Error())
		}
		return nil
	}
	any, err := pool.TakeAny()
	if err != nil {
		return fmt.Errorf("failed to allocate a nodePort: %w", err)
	}
	*port = any
	return nil
}

func allocateHealthCheckPort(new, old *corev1.Service, pool PortPool) error {
	needed, needs := old != nil && NeedsHealthCheckNodePort(old), NeedsHealthCheckNodePort(new)
	switch {
	case needed && !needs:
		pool.Release(old.Spec.HealthCheckNodePort)
	case needs && !needed && new.Spec.HealthCheckNodePort != 0:
		if err := pool.Take(new.Spec.HealthCheckNodePort); err != nil {
			return fmt.Errorf("failed to allocate requested HealthCheck NodePort %v: %w", new.Spec.HealthCheckNodePort, err)
		}
	case needs && !needed:
		port, err := pool.TakeAny()
		if err != nil {
			return fmt.Errorf("failed to allocate a HealthCheck NodePort %v: %w", port, err)
		}
		new.Spec.HealthCheckNodePort = port
	}
	return nil
}

// ReleasedNodePorts returns the node ports that a deleted service releases.
func ReleasedNodePorts(s *corev1.Service) []int32 {
	ports := nodePorts(s)
	if NeedsHealthCheckNodePort(s) && s.Spec.HealthCheckNodePort > 0 {
		ports = append(ports, s.Spec.HealthCheckNodePort)
	}
	return ports
}
