package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"skiff/internal/cluster"
	"skiff/internal/cluster/local"
)

// upLocal starts a cluster of local nodes.
func upLocal(ctx context.Context, cmd *cobra.Command, config cluster.Config, nodes int, memory string, merge bool) error {
	options := local.Options{DataDir: config.DataDir, Nodes: nodes, Memory: -1}
	f := cmd.Flags()
	for _, name := range []string{"no-node", "hostname-override", "node-ip", "bind-address", "advertise-address"} {
		if f.Changed(name) {
			return fmt.Errorf("--%s is about a node that is this machine itself; with --nodes each has its own", name)
		}
	}
	if f.Changed("nodes") && nodes < 1 {
		return fmt.Errorf("--nodes %d: there must be at least one", nodes)
	}
	if f.Changed("name") || !local.Exists(config.DataDir) {
		options.Name = config.Name
	}
	if f.Changed("port") {
		options.Port = config.Port
	}
	if memory != "" {
		limit, err := resource.ParseQuantity(memory)
		if err != nil || limit.Value() < minNodeMemory {
			return errors.Join(err, fmt.Errorf("--node-memory %q is not an amount of memory of at least 128Mi, such as 512Mi", memory))
		}
		options.Memory = limit.Value()
	}
	check := config // what is wrong with the flags is said here, not in a log file
	check.Node.Name, check.Node.IP = "checked", "127.0.0.1"
	if err := check.Complete(); err != nil {
		return err
	}
	options.Server = slices.DeleteFunc(passOn(f), func(flag string) bool {
		return strings.HasPrefix(flag, "--name=") || strings.HasPrefix(flag, "--data-dir=") || strings.HasPrefix(flag, "--port=")
	})
	options.Agent = agentFlags(f)
	began := time.Now()
	layout, started, err := local.Up(ctx, options)
	if err != nil {
		return err
	}
	check.Name, check.Port = layout.Name, layout.Port
	var names []string
	for _, n := range layout.Nodes {
		names = append(names, n.Name)
	}
	return reportUp(cmd, check, names, started, time.Since(began), merge)
}

// agentFlags returns the flags that were given and that agents take too: flags of the node apply to all nodes.
func agentFlags(f *pflag.FlagSet) (out []string) {
	var config cluster.AgentConfig
	var token string
	agent := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	addAgentFlags(agent, &config, &token)
	for _, flag := range passOn(f) {
		name, _, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		// Agents read the parts that are disabled from the server.
		if name != "data-dir" && name != "disable" && agent.Lookup(name) != nil {
			out = append(out, flag)
		}
	}
	return out
}

// minNodeMemory is the least memory limit that a node starts with.
const minNodeMemory = 128 << 20
