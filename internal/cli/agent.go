package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skiff/internal/cluster"
	"skiff/internal/cluster/memory"
	"skiff/internal/cluster/process"
)

func agentCommand() *cobra.Command {
	var config cluster.AgentConfig
	var tokenFile string
	cmd := &cobra.Command{
		Use:   "agent --server URL --token TOKEN",
		Short: "Run a node that joins a cluster elsewhere",
		Long: `Run a node that joins a cluster elsewhere, in the foreground.

  skiff token create                                  on the server: prints the command for this machine
  skiff agent --server https://192.0.2.1:6443 --token PIN::abcdef.0123456789abcdef

The token is needed once: the node gets a certificate of its own, renews it, and knows the server when it starts again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := readToken(&config, tokenFile); err != nil {
				return err
			}
			return runAgent(cmd, config)
		},
	}
	addAgentFlags(cmd.Flags(), &config, &tokenFile)
	return cmd
}

// addAgentFlags adds the flags of a node that joins.
func addAgentFlags(f *pflag.FlagSet, c *cluster.AgentConfig, tokenFile *string) {
	f.StringVar(&c.DataDir, "data-dir", cluster.DefaultDataDir, "where the node's data is kept")
	f.StringVar(&c.Server, "server", "", "URL of the API to join, such as https://192.0.2.1:6443; where the node joined before if empty")
	f.StringVar(&c.Token, "token", "", "what to join with, as \"skiff token create\" prints it; not needed once the node has joined")
	f.StringVar(tokenFile, "token-file", "", "file that holds the token, so that others on this machine do not see it in the list of processes")
	f.StringSliceVar(&c.Disable, "disable", nil, "parts not to run, besides those that the server leaves out: "+strings.Join(cluster.NodeParts, ", "))
	addKubeletFlags(f, &c.Node)
}

// readToken sets the token from --token-file, if that is given.
func readToken(c *cluster.AgentConfig, file string) error {
	if file == "" {
		return nil
	}
	if c.Token != "" {
		return errors.New("--token and --token-file exclude each other")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	c.Token = strings.TrimSpace(string(data))
	return nil
}

// runAgent runs the node until SIGINT or SIGTERM.
func runAgent(cmd *cobra.Command, config cluster.AgentConfig) error {
	keepDescriptors()
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer memory.Tune()()
	if err := config.Complete(); err != nil {
		return err
	}
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
	config.Log = slog.Default()
	agent, err := cluster.StartAgent(ctx, config)
	if err != nil {
		return err
	}
	slog.Info("the node is running", "node", agent.Node(), "server", config.Server)
	err = agent.Wait(ctx)
	agent.Stop()
	return err
}

// called returns what a data directory is of, for messages: a cluster, or a node that has joined one elsewhere.
func called(config cluster.Config) string {
	if node, ok := cluster.IsAgent(config.DataDir); ok {
		return "node " + node
	}
	return "cluster " + config.Name
}
