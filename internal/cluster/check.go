package cluster

import (
	"context"
	"path/filepath"

	"skiff/internal/cluster/check"
	"skiff/internal/cluster/process"
)

// Check looks whether this machine can run the cluster, with itself as a node or with so many on it that have networks of their own.
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
