package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skiff/internal/cluster"
)

func installCommand() *cobra.Command {
	var config cluster.Config
	var where places
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Make skiff a service that starts with the machine",
		Long: `Make skiff a service that starts with the machine.

The flags are those of up. This program is copied to /usr/local/bin, where only root can change it; to upgrade, run install with the new program.
The unit is called skiff.service, or skiff-NAME.service for a cluster of another name. Pods go on running while the
service is restarted, and come back after a reboot.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if node, ok := cluster.IsAgent(config.DataDir); ok {
				return fmt.Errorf("%s is that of node %s, which has joined a cluster elsewhere: \"skiff install agent\" makes it a service", config.DataDir, node)
			}
			check := config
			if err := check.Complete(); err != nil {
				return err
			}
			name := "skiff.service"
			if config.Name != cluster.DefaultName {
				name = "skiff-" + config.Name + ".service"
			}
			return install(cmd, where, name, append([]string{"server"}, passOn(cmd.Flags())...), config.Node.Run)
		},
	}
	addServerFlags(cmd.Flags(), &config)
	addPlaceFlags(cmd.Flags(), &where)
	cmd.AddCommand(installAgentCommand())
	return cmd
}

func installAgentCommand() *cobra.Command {
	var config cluster.AgentConfig
	var where places
	var tokenFile string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Make a node that joins a cluster elsewhere a service that starts with the machine",
		Long: `Make a node that joins a cluster elsewhere a service that starts with the machine.

The flags are those of agent. This program is copied to /usr/local/bin, where only root can change it; to upgrade, run install agent with the new
program. The unit is called skiff-agent.service. The token is kept in the data directory, where only root can read it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := readToken(&config, tokenFile); err != nil {
				return err
			}
			check := config
			if err := check.Complete(); err != nil {
				return err
			}
			arguments := []string{"agent"}
			for _, f := range passOn(cmd.Flags()) {
				if !strings.HasPrefix(f, "--token=") && !strings.HasPrefix(f, "--token-file=") {
					arguments = append(arguments, f)
				}
			}
			if check.Token != "" {
				file, err := cluster.WriteAgentToken(check.DataDir, check.Token)
				if err != nil {
					return err
				}
				arguments = append(arguments, "--token-file="+file)
			}
			return install(cmd, where, "skiff-agent.service", arguments, true)
		},
	}
	addAgentFlags(cmd.Flags(), &config, &tokenFile)
	addPlaceFlags(cmd.Flags(), &where)
	return cmd
}

// places are the directories of an installation.
type places struct{ units, programs string }

func addPlaceFlags(f *pflag.FlagSet, p *places) {
	f.StringVar(&p.units, "unit-dir", systemUnits, "where the unit is written")
	f.StringVar(&p.programs, "bin-dir", systemPrograms, "where the program is copied to, which the unit runs")
}

// install copies this program and writes a unit that runs the copy with the given arguments.
func install(cmd *cobra.Command, p places, name string, arguments []string, node bool) error {
	if os.Geteuid() != 0 && p == (places{systemUnits, systemPrograms}) {
		return errors.New("only root can install a service: use sudo")
	}
	program, err := installProgram(p.programs)
	if err != nil {
		return fmt.Errorf("failed to copy the program: %w", err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is this program\n", program)
	file := filepath.Join(p.units, name)
	if err := os.WriteFile(file, []byte(unit(program, arguments, node)), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is written\n", file)
	return enable(cmd, p.units, name)
}

const systemUnits = "/etc/systemd/system"

// enable enables and starts the service, if systemd runs this machine.
func enable(cmd *cobra.Command, directory, name string) error {
	_, err := os.Stat("/run/systemd/system")
	if directory != systemUnits || errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(cmd.OutOrStdout(), "To use it:\n  systemctl daemon-reload\n  systemctl enable --now %s\n", name)
		return nil
	}
	for _, args := range [][]string{{"daemon-reload"}, {"enable", name}, {"restart", name}} {
		if out, err := exec.CommandContext(cmd.Context(), "systemctl", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("failed to run systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s runs, and will start with the machine\n", name)
	return nil
}
