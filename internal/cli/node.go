package cli

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"skiff/internal/cluster"
	"skiff/internal/cluster/local"
)

// nodeCommand has the commands for the local nodes of "skiff up --nodes".
func nodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "List, stop, start, cut off and reconnect the nodes that up --nodes made on this machine",
	}
	var config cluster.Config
	addClusterFlags(cmd.PersistentFlags(), &config)
	cmd.AddCommand(nodeListCommand(&config), nodeStopCommand(&config), nodeStartCommand(&config), nodePartitionCommand(&config), nodeHealCommand(&config))
	return cmd
}

func nodeListCommand(config *cluster.Config) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the nodes and how their machines are",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, err := local.Inspect(config.DataDir)
			if err != nil {
				return err
			}
			return printNodes(cmd.OutOrStdout(), "", nodes)
		},
	}
}

func printNodes(out io.Writer, indent string, nodes []local.State) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, indent+"NAME\tROLE\tADDRESS\tMACHINE\tSKIFF")
	for _, n := range nodes {
		role, machine, skiff := "agent", "off", "-"
		if n.Server() {
			role = "server"
		}
		if n.Running {
			machine, skiff = "on", "stopped"
		}
		if n.Partitioned {
			machine += ", cut off"
		}
		if n.PID != 0 {
			skiff = fmt.Sprintf("process %d", n.PID)
		}
		fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%s\n", indent, n.Name, role, n.Address, machine, skiff)
	}
	return w.Flush()
}

func nodeStopCommand(config *cluster.Config) *cobra.Command {
	return &cobra.Command{
		Use:   "stop NAME",
		Short: "End the machine of a node, as when power fails; start brings it back",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ran, err := local.StopNode(cmd.Context(), config.DataDir, args[0])
			if err != nil {
				return err
			}
			return say(cmd, ran, args[0], "is off", "was off")
		},
	}
}

func say(cmd *cobra.Command, changed bool, name, now, before string) error {
	if !changed {
		now = before
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "node %s %s\n", name, now)
	return err
}

func nodeStartCommand(config *cluster.Config) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "start NAME",
		Short: "Start the machine of a node, with the address and the disk that it had",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := contextWithTimeout(cmd, timeout)
			defer cancel()
			started, err := local.StartNode(ctx, config.DataDir, args[0])
			if err != nil {
				return err
			}
			return say(cmd, started, args[0], "is on and Ready", "was on and is Ready")
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for the node to be Ready")
	return cmd
}

func nodePartitionCommand(config *cluster.Config) *cobra.Command {
	return &cobra.Command{
		Use:   "partition NAME",
		Short: "Cut a node off from all other nodes; heal undoes it",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			changed, err := local.Partition(cmd.Context(), config.DataDir, args[0], true)
			if err != nil {
				return err
			}
			return say(cmd, changed, args[0], "is cut off from all other nodes", "was cut off from all other nodes")
		},
	}
}

func nodeHealCommand(config *cluster.Config) *cobra.Command {
	return &cobra.Command{
		Use:   "heal NAME",
		Short: "Connect a node with the others again",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			changed, err := local.Partition(cmd.Context(), config.DataDir, args[0], false)
			if err != nil {
				return err
			}
			return say(cmd, changed, args[0], "is connected with the other nodes again", "was connected with the other nodes")
		},
	}
}

// nodeInitCommand is run by skiff itself, as the first process of a local node: see local.Init.
func nodeInitCommand() *cobra.Command {
	return &cobra.Command{
		Use:    local.InitCommand + " CLUSTER NODE",
		Short:  "Make the machine of a node around this process, and become the process that reaps there",
		Args:   cobra.ExactArgs(2),
		Hidden: true,
		RunE:   func(*cobra.Command, []string) error { return local.Init() },
	}
}
