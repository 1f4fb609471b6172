package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skiff/internal/client"
	"skiff/internal/cluster"
	"skiff/internal/cluster/memory"
)

func controllerManagerCommand() *cobra.Command {
	cmd, remote := componentCommand("controller-manager", "kube-controller-manager", "Run the control loops alone, with Kubernetes' own flag names", cluster.RunControllers)
	addControllerFlags(cmd.Flags(), &remote.Config)
	return cmd
}

func schedulerCommand() *cobra.Command {
	cmd, remote := componentCommand("scheduler", "kube-scheduler", "Run the scheduler alone, with Kubernetes' own flag names", cluster.RunScheduler)
	addSchedulerFlags(cmd.Flags(), &remote.Config, "config")
	return cmd
}

// componentCommand returns a command that runs a component against a server elsewhere, until SIGINT or SIGTERM.
func componentCommand(name, component, short string, run func(context.Context, cluster.Remote) error) (*cobra.Command, *cluster.Remote) {
	remote := &cluster.Remote{}
	cmd := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			defer memory.Tune()()
			if remote.Kubeconfig == "" {
				return errors.New("--kubeconfig is required")
			}
			remote.Log = slog.Default()
			return run(ctx, *remote)
		},
	}
	showVersion(cmd)
	cmd.Flags().StringVar(&remote.Kubeconfig, "kubeconfig", "", "how to reach the API")
	remote.Election = addElectionFlags(cmd.Flags(), component)
	return cmd, remote
}

// showVersion adds the flag --version, which prints what Kubernetes' own component would. cobra can do that too, with templates, which make the program
// a quarter larger: the linker keeps whatever a template could name.
func showVersion(cmd *cobra.Command) {
	version := cmd.Flags().Bool("version", false, "say which version of Kubernetes this is, and end")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *version {
			fmt.Fprintln(cmd.OutOrStdout(), "Kubernetes", cluster.Version)
			return nil
		}
		return run(cmd, args)
	}
}

// addElectionFlags adds the flags of leader election. The function that it returns sets those that were given, over what a configuration file says.
func addElectionFlags(f *pflag.FlagSet, component string) func(*client.Election) {
	e := client.DefaultElection(component)
	f.BoolVar(&e.Elect, "leader-elect", e.Elect, "work only while no other instance does")
	f.DurationVar(&e.LeaseDuration, "leader-elect-lease-duration", e.LeaseDuration, "how long a leader that is silent is left alone before another one takes over; whole seconds")
	f.DurationVar(&e.RenewDeadline, "leader-elect-renew-deadline", e.RenewDeadline, "how long a leader tries to renew its lease before it gives up")
	f.DurationVar(&e.RetryPeriod, "leader-elect-retry-period", e.RetryPeriod, "how often leaders renew, and others try to lead")
	f.StringVar(&e.Name, "leader-elect-resource-name", e.Name, "name of the Lease that the leader holds")
	f.StringVar(&e.ResourceNamespace, "leader-elect-resource-namespace", e.ResourceNamespace, "namespace of the Lease that the leader holds")
	f.Var(&leases{}, "leader-elect-resource-lock", "what the leader holds: leases")
	return func(to *client.Election) {
		for name, take := range map[string]func(){
			"leader-elect":                    func() { to.Elect = e.Elect },
			"leader-elect-lease-duration":     func() { to.LeaseDuration = e.LeaseDuration },
			"leader-elect-renew-deadline":     func() { to.RenewDeadline = e.RenewDeadline },
			"leader-elect-retry-period":       func() { to.RetryPeriod = e.RetryPeriod },
			"leader-elect-resource-name":      func() { to.Name = e.Name },
			"leader-elect-resource-namespace": func() { to.ResourceNamespace = e.ResourceNamespace },
		} {
			if f.Changed(name) {
				take()
			}
		}
	}
}

// leases is a flag with one value.
type leases struct{}

// Set accepts the only value.
func (*leases) Set(value string) error {
	if value != "leases" {
		return errors.New(`resourceLock value must be "leases"`)
	}
	return nil
}

// String returns the value.
func (*leases) String() string { return "leases" }

// Type returns the name of the flag's type, for its help.
func (*leases) Type() string { return "string" }
