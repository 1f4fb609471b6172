package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"skiff/internal/cluster"
)

func stopCommand() *cobra.Command {
	var config cluster.Config
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop skiff, keeping everything; up goes on from there",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			stopped, err := cluster.Terminate(cmd.Context(), config.DataDir)
			if err != nil {
				return err
			}
			if stopped {
				fmt.Fprintf(cmd.OutOrStdout(), "cluster %s is stopped\n", config.Name)
			} else {
				fmt.Fprintf(cmd.OutOrStdout(), "cluster %s was not running\n", config.Name)
			}
			return nil
		},
	}
	addClusterFlags(cmd.Flags(), &config)
	return cmd
}

func downCommand() *cobra.Command {
	var config cluster.Config
	var purge bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and all it runs, keeping data unless --purge",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := cluster.Terminate(cmd.Context(), config.DataDir); err != nil {
				return err
			}
			if err := cluster.CleanNode(cmd.Context(), config.DataDir); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "cluster %s is down\n", config.Name)
			if !purge {
				return nil
			}
			if err := cluster.Purge(config.DataDir, config.Name); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is removed\n", config.DataDir)
			return nil
		},
	}
	addClusterFlags(cmd.Flags(), &config)
	cmd.Flags().BoolVar(&purge, "purge", false, "remove the cluster's data and its context in your kubeconfig too")
	return cmd
}

func statusCommand() *cobra.Command {
	var config cluster.Config
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say whether the cluster runs and how it is",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := cluster.Inspect(cmd.Context(), config.DataDir)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if !status.Running {
				fmt.Fprintf(out, "cluster %s is not running\n", config.Name)
				return nil
			}
			health := "ready"
			if status.Problem != nil {
				health = "not ready: " + status.Problem.Error()
			}
			fmt.Fprintf(out, "cluster %s is running\n  process     %d\n  memory      %.1f MB resident\n  API         %s, %s\n  version     %s\n", config.Name, status.PID, float64(status.ResidentBytes)/1e6, status.URL, health, status.Version)
			return nil
		},
	}
	addClusterFlags(cmd.Flags(), &config)
	return cmd
}
