package cli

import (
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"skiff/internal/cluster"
)

func controllerManagerCommand() *cobra.Command {
	remote := cluster.Remote{}
	cmd := &cobra.Command{
		Use:   "controller-manager",
		Short: "Run the control loops alone, with Kubernetes' own flag names",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			cluster.TuneMemory()
			remote.Log = slog.Default()
			return cluster.RunControllers(ctx, remote)
		},
	}
	addRemoteFlags(cmd, &remote)
	addControllerFlags(cmd.Flags(), &remote.Config)
	return cmd
}

func schedulerCommand() *cobra.Command {
	remote := cluster.Remote{}
	cmd := &cobra.Command{
		Use:   "scheduler",
		Short: "Run the scheduler alone, with Kubernetes' own flag names",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			cluster.TuneMemory()
			remote.Log = slog.Default()
			return cluster.RunScheduler(ctx, remote)
		},
	}
	addRemoteFlags(cmd, &remote)
	addSchedulerFlags(cmd.Flags(), &remote.Config, "config")
	return cmd
}

func addRemoteFlags(cmd *cobra.Command, r *cluster.Remote) {
	cmd.Flags().StringVar(&r.Kubeconfig, "kubeconfig", "", "how to reach the API")
	cmd.Flags().BoolVar(&r.LeaderElect, "leader-elect", true, "work only while no other instance does")
	_ = cmd.MarkFlagRequired("kubeconfig") // it is there
}
