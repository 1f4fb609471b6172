package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"skiff/internal/cluster"
	"skiff/internal/cluster/local"
	"skiff/internal/cluster/process"
)

func stopCommand() *cobra.Command {
	var config cluster.Config
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop skiff, keeping everything; up goes on from there",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			stop := process.Terminate
			if useLayout(&config) {
				stop = local.Stop
			}
			stopped, err := stop(cmd.Context(), config.DataDir)
			if err != nil {
				return err
			}
			if stopped {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is stopped\n", called(config))
			} else {
				fmt.Fprintf(cmd.OutOrStdout(), "%s was not running\n", called(config))
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
			isLocal := useLayout(&config)
			if err := takeDown(cmd.Context(), config.DataDir, isLocal); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is down\n", called(config))
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

// useLayout reports whether the nodes of the cluster are local ones, and sets the name that the cluster was created with.
func useLayout(config *cluster.Config) bool {
	if !local.Exists(config.DataDir) {
		return false
	}
	if l, err := local.Load(config.DataDir); err == nil {
		config.Name = l.Name
	}
	return true
}

// takeDown stops a cluster and all it runs, with local nodes or on the machine itself.
func takeDown(ctx context.Context, dataDir string, isLocal bool) error {
	if isLocal {
		return local.Down(ctx, dataDir)
	}
	if _, err := process.Terminate(ctx, dataDir); err != nil {
		return err
	}
	return cluster.CleanNode(ctx, dataDir)
}

// printStatus prints the status of local nodes.
func printStatus(out io.Writer, nodes []local.State) error {
	if len(nodes) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	return printNodes(out, "  ", nodes)
}

// printDatabase prints the usage of the database and, from half of its quota on, its largest shares.
func printDatabase(out io.Writer, u cluster.DatabaseUsage) {
	if u.Size == 0 {
		return
	}
	of := ""
	if u.Quota > 0 {
		of = fmt.Sprintf(" of %.0f MB", float64(u.Quota)/1e6)
	}
	fmt.Fprintf(out, "  database    %.1f MB%s in use, %.1f MB on disk\n", float64(u.InUse)/1e6, of, float64(u.Size)/1e6)
	for _, share := range u.Largest {
		namespace := "no namespace"
		if share.Namespace != "" {
			namespace = "namespace " + share.Namespace
		}
		fmt.Fprintf(out, "              %.1f MB are %s of %s\n", float64(share.Bytes)/1e6, share.Resource, namespace)
	}
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
			var nodes []local.State
			if useLayout(&config) {
				if nodes, err = local.Inspect(config.DataDir); err != nil {
					return err
				}
				status.SetProcess(nodes[0].PID)
			}
			if !status.Running {
				fmt.Fprintf(out, "%s is not running\n", called(config))
				return printStatus(out, nodes)
			}
			health := "ready"
			if status.Problem != nil {
				health = "not ready: " + status.Problem.Error()
			}
			fmt.Fprintf(out, "%s is running\n  process     %d\n  memory      %.1f MB resident\n  API         %s, %s\n  version     %s\n", called(config), status.PID, float64(status.ResidentBytes)/1e6, status.URL, health, status.Version)
			printDatabase(out, status.Database)
			return printStatus(out, nodes)
		},
	}
	addClusterFlags(cmd.Flags(), &config)
	return cmd
}
