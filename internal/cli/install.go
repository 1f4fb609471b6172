package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"skiff/internal/cluster"
	"skiff/internal/timerslack"
)

func installCommand() *cobra.Command {
	var config cluster.Config
	var directory string
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Make skiff a service that starts with the machine",
		Long: `Make skiff a service that starts with the machine.

The flags are those of up. The unit is called skiff.service, or skiff-NAME.service for a cluster of another name. Pods go on running while the
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
			return install(cmd, directory, name, append([]string{"server"}, passOn(cmd.Flags())...))
		},
	}
	addServerFlags(cmd.Flags(), &config)
	cmd.Flags().StringVar(&directory, "unit-dir", systemUnits, "where the unit is written")
	cmd.AddCommand(installAgentCommand())
	return cmd
}

func installAgentCommand() *cobra.Command {
	var config cluster.AgentConfig
	var directory, tokenFile string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Make a node that joins a cluster elsewhere a service that starts with the machine",
		Long: `Make a node that joins a cluster elsewhere a service that starts with the machine.

The flags are those of agent. The unit is called skiff-agent.service. The token is kept in the data directory, where only root can read it.`,
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
				file := filepath.Join(check.DataDir, cluster.AgentTokenFile)
				if err := errors.Join(os.MkdirAll(check.DataDir, 0o700), os.WriteFile(file, []byte(check.Token+"\n"), 0o600)); err != nil {
					return err
				}
				arguments = append(arguments, "--token-file="+file)
			}
			return install(cmd, directory, "skiff-agent.service", arguments)
		},
	}
	addAgentFlags(cmd.Flags(), &config, &tokenFile)
	cmd.Flags().StringVar(&directory, "unit-dir", systemUnits, "where the unit is written")
	return cmd
}

// install writes a unit that runs this program with the given arguments.
func install(cmd *cobra.Command, directory, name string, arguments []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	file := filepath.Join(directory, name)
	if err := os.WriteFile(file, []byte(unit(self, arguments)), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is written\n", file)
	return enable(cmd, directory, name)
}

const systemUnits = "/etc/systemd/system"

// unit is the service. Only skiff itself is stopped with it: what it started goes on.
func unit(program string, arguments []string) string {
	command := []string{program}
	for _, f := range arguments {
		if !strings.HasPrefix(f, "--unit-dir=") {
			command = append(command, f)
		}
	}
	for i, word := range command {
		command[i] = quote(word)
	}
	return `[Unit]
Description=skiff, a Kubernetes in one program
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=` + strings.Join(command, " ") + `
KillMode=process
Delegate=yes
Restart=always
RestartSec=1
LimitNOFILE=1048576
TasksMax=infinity
OOMScoreAdjust=-999
TimerSlackNSec=` + strconv.Itoa(int(timerslack.Ample)) + `

[Install]
WantedBy=multi-user.target
`
}

// quote is how a word is written in a unit.
func quote(word string) string {
	word = strings.NewReplacer("%", "%%", "$", "$$").Replace(word)
	if !strings.ContainsAny(word, " \t\"'\\;") {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}

// enable has systemd start the service from now on, if systemd is what runs this machine.
func enable(cmd *cobra.Command, directory, name string) error {
	_, err := os.Stat("/run/systemd/system")
	if directory != systemUnits || errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(cmd.OutOrStdout(), "To use it:\n  systemctl daemon-reload\n  systemctl enable --now %s\n", name)
		return nil
	}
	for _, args := range [][]string{{"daemon-reload"}, {"enable", "--now", name}} {
		if out, err := exec.CommandContext(cmd.Context(), "systemctl", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s runs, and will start with the machine\n", name)
	return nil
}
