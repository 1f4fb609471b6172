package cli

import (
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"skiff/internal/cluster"
	"skiff/internal/cluster/memory"
	"skiff/internal/cluster/process"
)

func serverCommand() *cobra.Command {
	var config cluster.Config
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a cluster in the foreground, for service managers; this is what up starts",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return run(cmd, config) },
	}
	addServerFlags(cmd.Flags(), &config)
	return cmd
}

func apiserverCommand() *cobra.Command {
	config := cluster.Config{Disable: []string{cluster.PartScheduler, cluster.PartMetrics}} // and no control loops, as there is no flag for them
	cmd := &cobra.Command{
		Use:   "apiserver",
		Short: "Run the API server alone, with Kubernetes' own flag names",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return run(cmd, config) },
	}
	showVersion(cmd)
	addClusterFlags(cmd.Flags(), &config)
	addAPIFlags(cmd.Flags(), &config)
	addServingFlags(cmd.Flags(), &config)
	addIdentityFlags(cmd.Flags(), &config)
	addStoreFlags(cmd.Flags(), &config)
	cmd.Flags().IntVar(&config.Port, "secure-port", cluster.DefaultPort, "port to serve the API on")
	return cmd
}

// run runs a server until SIGINT or SIGTERM.
func run(cmd *cobra.Command, config cluster.Config) error {
	keepDescriptors()
	config.Flags = valuesOf(cmd.Flags())
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer memory.Tune()()
	unlock, err := process.LockPIDFile(config.DataDir)
	if err != nil {
		return err
	}
	defer unlock()
	closeLog, err := keepLog(cmd, config.DataDir)
	if err != nil {
		return err
	}
	defer closeLog()
	server, err := cluster.Start(ctx, config)
	if err != nil {
		return err
	}
	slog.Info("the API is ready", "url", server.URL(), "kubeconfig", cluster.KubeconfigPath(config.DataDir))
	err = server.Wait(ctx)
	stop() // a second signal ends the process at once
	server.Stop()
	return err
}
