package kubectl

import (
	"os"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // exec and OIDC logins of kubeconfigs
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// Main runs kubectl with the arguments of the process, and exits as upstream's does if that fails.
func Main() {
	// Plugins and .kuberc are read, and may log, before flags are parsed.
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
