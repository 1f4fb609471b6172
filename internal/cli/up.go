package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skiff/internal/cluster"
	"skiff/internal/cluster/kubeconfig"
	"skiff/internal/cluster/local"
	"skiff/internal/cluster/process"
)

func upCommand() *cobra.Command {
	var config cluster.Config
	var merge bool
	var nodes int
	var memory string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start or resume a cluster and leave it running in the background",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			keepDescriptors()
			ctx, cancel := contextWithTimeout(cmd, timeout)
			defer cancel()
			if cmd.Flags().Changed("nodes") || local.Exists(config.DataDir) {
				return upLocal(ctx, cmd, config, nodes, memory, merge)
			}
			check := config // wrong flags are reported here, not in a log file
			if err := check.Complete(); err != nil {
				return err
			}
			began := time.Now()
			started, err := cluster.Launch(ctx, config.DataDir, append([]string{"server"}, passOn(cmd.Flags())...))
			if err != nil {
				return err
			}
			if check.Node.Run {
				var since time.Time
				if started {
					since = began
				}
				if err := cluster.AwaitNode(ctx, config.DataDir, check.Node.Name, since); err != nil {
					return err
				}
			}
			var names []string
			if check.Node.Run {
				names = []string{check.Node.Name}
			}
			return reportUp(cmd, check, names, started, time.Since(began), merge)
		},
	}
	addServerFlags(cmd.Flags(), &config)
	cmd.Flags().IntVar(&nodes, "nodes", 0, "make so many nodes of namespaces on this machine, instead of one that is the machine itself; what up is told with it is remembered: the next up needs no flags")
	cmd.Flags().StringVar(&memory, "node-memory", "", "with --nodes, how much memory each of them has, such as 512Mi; all of the machine's if empty")
	cmd.Flags().BoolVar(&merge, "merge-kubeconfig", false, "add the cluster to your kubeconfig; done anyway for the default data directory")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for the cluster to be ready")
	return cmd
}

func contextWithTimeout(cmd *cobra.Command, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(cmd.Context(), timeout)
}

// passOn returns the flags that were given and that the server takes too.
func passOn(flags *pflag.FlagSet) []string {
	var out []string
	flags.Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "merge-kubeconfig", "timeout", "nodes", "node-memory":
		default:
			value := f.Value.String()
			if s, ok := f.Value.(pflag.SliceValue); ok {
				for _, v := range s.GetSlice() {
					out = append(out, "--"+f.Name+"="+v)
				}
				return
			}
			if f.Value.Type() == "stringToString" { // its String is not the form that it parses
				value = strings.TrimSuffix(strings.TrimPrefix(value, "["), "]")
			}
			out = append(out, "--"+f.Name+"="+value)
		}
	})
	return out
}

func reportUp(cmd *cobra.Command, config cluster.Config, nodes []string, started bool, took time.Duration, merge bool) error {
	out := cmd.OutOrStdout()
	if started {
		fmt.Fprintf(out, "cluster %s is up after %.2f s\n", config.Name, took.Seconds())
	} else {
		fmt.Fprintf(out, "cluster %s is already up\n", config.Name)
	}
	for i, node := range nodes {
		what := "node "
		if i > 0 {
			what = "     "
		}
		fmt.Fprintf(out, "  %s       %s, Ready\n", what, node)
	}
	fmt.Fprintf(out, "  kubeconfig  %s\n  log         %s\n", cluster.KubeconfigPath(config.DataDir), process.LogPath(config.DataDir))
	if merge || config.DataDir == cluster.DefaultDataDir {
		file, err := kubeconfig.Merge(config.DataDir, config.Name)
		if err != nil {
			return err
		}
		context := ""
		if !kubeconfig.IsCurrentContext(config.Name) {
			context = " --context " + config.Name
		}
		fmt.Fprintf(out, "  context     %s in %s\n\nTry:\n  kubectl%s get %s\n", config.Name, file, context, worthSeeing(nodes))
		return nil
	}
	fmt.Fprintf(out, "\nTry:\n  kubectl --kubeconfig %s get %s\n", cluster.KubeconfigPath(config.DataDir), worthSeeing(nodes))
	return nil
}

// worthSeeing returns the resource that a new cluster has objects of.
func worthSeeing(nodes []string) string {
	if len(nodes) > 0 {
		return "nodes"
	}
	return "namespaces"
}
