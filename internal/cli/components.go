package cli

import (
	"context"
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"skiff/internal/cluster"
)

func controllerManagerCommand() *cobra.Command {
	cmd, remote := componentCommand("controller-manager", "Run the control loops alone, with Kubernetes' own flag names", cluster.RunControllers)
	addControllerFlags(cmd.Flags(), &remote.Config)
	return cmd
}

func schedulerCommand() *cobra.Command {
	cmd, remote := componentCommand("scheduler", "Run the scheduler alone, with Kubernetes' own flag names", cluster.RunScheduler)
	addSchedulerFlags(cmd.Flags(), &remote.Config, "config")
	return cmd
}

// componentCommand runs a component against a server elsewhere until it is told to stop.
func componentCommand(name, short string, run func(context.Context, cluster.Remote) error) (*cobra.Command, *cluster.Remote) {
	remote := &cluster.Remote{}
	cmd := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			cluster.TuneMemory()
			remote.Log = slog.Default()
			return run(ctx, *remote)
		},
	}
	cmd.Flags().StringVar(&remote.Kubeconfig, "kubeconfig", "", "how to reach the API")
	cmd.Flags().BoolVar(&remote.LeaderElect, "leader-elect", true, "work only while no other instance does")
	_ = cmd.MarkFlagRequired("kubeconfig") // it is there
	return cmd, remote
}
