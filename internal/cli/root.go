package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"skiff/internal/cluster"
)

// Main runs the command line and returns the exit code.
func Main() int {
	root := &cobra.Command{
		Use:   "skiff",
		Short: "skiff is a complete Kubernetes in one small program",
		Long: `skiff is a complete Kubernetes in one small program.

  skiff up               start a cluster on this machine and leave it running
  kubectl run --image=nginx --replicas=3
  skiff journey deployment/nginx
  skiff down --purge     stop it and remove its data`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       cluster.Version,
	}
	verbosity := root.PersistentFlags().IntP("v", "v", 0, "how much to log: 0 is warnings and what a person would want to know, 4 everything")
	root.PersistentPreRun = func(*cobra.Command, []string) { setLog(os.Stderr, *verbosity) }
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(upCommand(), stopCommand(), downCommand(), statusCommand(), checkCommand(), installCommand(), demoCommand(), serverCommand(), agentCommand(), tokenCommand(), apiserverCommand(), controllerManagerCommand(), schedulerCommand(), proxyCommand(), snapshotCommand(), kubectlCommand(), journeyCommand(), whyCommand(), imageCommand(), noticesCommand(), unpackCommand(), nodeCommand(), nodeInitCommand())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "skiff:", err)
		return 1
	}
	return 0
}
