package cluster

import (
	"context"
	"path/filepath"

	"skiff/internal/cluster/check"
	"skiff/internal/cluster/process"
)

// Check checks whether this machine can run the cluster: with the machine itself as its node if nodes is 0, and otherwise with so many local nodes, whose ports
// are in network namespaces of their own.
func Check(ctx context.Context, c Config, nodes int) ([]check.Finding, error) {
	dataDir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return nil, err
	}
	pid, err := process.PID(dataDir)
	if err != nil {
		return nil, err
	}
	ports := map[int]string{c.Port: "API"}
	if nodes == 0 {
		ports[c.Node.Port], ports[proxyHealthPort], ports[proxyMetricsPort], ports[dnsPort] = "kubelet", "service proxy's health", "service proxy's metrics", "name server"
	}
	return check.Machine(check.Options{DataDir: dataDir, Ports: ports, Running: pid != 0}), nil
}
