package kubectl

import (
	"os"

	"github.com/spf13/cobra"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // exec and OIDC logins of kubeconfigs
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/plugin"
	"k8s.io/kubectl/pkg/cmd/util"
)

// Main runs kubectl with the arguments of the process, and exits as upstream's does if that fails.
func Main() {
	// Plugins and .kuberc are read, and may log, before flags are parsed.
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(os.Args))
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	if err := cli.RunNoErrOutput(New(os.Args, streams)); err != nil {
		util.CheckErr(err)
	}
}

// New returns the command tree. args are those of the process, its name included.
func New(args []string, streams genericiooptions.IOStreams) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).WithDiscoveryQPS(50).WithWarningPrinter(streams)
	root := cmd.NewDefaultKubectlCommandWithArgs(cmd.KubectlOptions{
		PluginHandler: cmd.NewDefaultPluginHandler(plugin.ValidPluginFilenamePrefixes), Arguments: args, ConfigFlags: flags, IOStreams: streams,
	})
	factory := util.NewFactory(util.NewMatchVersionFlags(flags))
	for _, c := range root.Commands() {
		if c.Name() == "run" {
			extendRun(c, factory, streams)
		}
	}
	checkTypesFirst(root, flags)
	before := root.PersistentPreRunE
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		if err := before(cmd, args); err != nil {
			return err
		}
		return preferUsername(cmd, flags)
	}
	return root
}
