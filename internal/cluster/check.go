package cluster

import (
	"context"
	"path/filepath"

	"skiff/internal/cluster/check"
)

// Check looks whether this machine can run the cluster with a node.
func Check(ctx context.Context, c Config) ([]check.Finding, error) {
	dataDir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return nil, err
	}
	pid, err := occupant(dataDir)
	if err != nil {
		return nil, err
	}
	ports := map[int]string{c.Port: "API", c.Node.Port: "kubelet"}
	return check.Machine(check.Options{DataDir: dataDir, Ports: ports, Running: pid != 0}), nil
}
