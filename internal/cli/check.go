package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"skiff/internal/cluster"
	"skiff/internal/cluster/check"
)

func checkCommand() *cobra.Command {
	var config cluster.Config
	var nodes int
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look whether this machine can run a node, and say what to do where it cannot",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings, err := cluster.Check(cmd.Context(), config, nodes)
			if err != nil {
				return err
			}
			if problems := check.Print(cmd.OutOrStdout(), findings); problems > 0 {
				return fmt.Errorf("%d of these keep this machine from running a node", problems)
			}
			return nil
		},
	}
	addClusterFlags(cmd.Flags(), &config)
	cmd.Flags().IntVar(&config.Port, "port", cluster.DefaultPort, "port to serve the API on")
	cmd.Flags().IntVar(&nodes, "nodes", 0, "how many nodes up is to make on this machine: they have ports of their own; the machine itself is the node if 0")
	cmd.Flags().IntVar(&config.Node.Port, "kubelet-port", cluster.DefaultKubeletPort, "port of the kubelet")
	return cmd
}
