package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"skiff/internal/cluster"
)

func snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "snapshot", Short: "Save the cluster's state to a file, and bring it back"}
	cmd.AddCommand(snapshotSaveCommand(), snapshotRestoreCommand())
	return cmd
}

func snapshotSaveCommand() *cobra.Command {
	var config cluster.Config
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Save the state of a stopped cluster",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := cluster.SaveSnapshot(cmd.Context(), config.DataDir, args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "saved %d bytes to %s\n", size, args[0])
			return nil
		},
	}
	addClusterFlags(cmd.Flags(), &config)
	return cmd
}

func snapshotRestoreCommand() *cobra.Command {
	var config cluster.Config
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Replace the state of a stopped cluster with a saved one; what was there is kept aside",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			aside, err := cluster.RestoreSnapshot(config.DataDir, args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "restored %s\n", args[0])
			if aside != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "the state before is in %s\n", aside)
			}
			return nil
		},
	}
	addClusterFlags(cmd.Flags(), &config)
	return cmd
}
