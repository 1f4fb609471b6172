package kubectl

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// preferUsername has --username replace the credentials of the kubeconfig. client-go would send it beside a certificate, which
// servers check first, and refuses it beside a token; so commands get a kubeconfig without either.
func preferUsername(cmd *cobra.Command, flags *genericclioptions.ConfigFlags) error {
	if *flags.Username == "" || *flags.BearerToken != "" || strings.HasPrefix(cmd.CommandPath(), cmd.Root().Name()+" config") {
		return nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = *flags.KubeConfig
	config, err := rules.Load()
	if err != nil {
		return nil // the command itself will say so
	}
	for name, user := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Impersonate: user.Impersonate, ImpersonateUID: user.ImpersonateUID,
			ImpersonateGroups: user.ImpersonateGroups, ImpersonateUserExtra: user.ImpersonateUserExtra}
	}
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("failed to read the kubeconfig: %w", err)
	}
	file, err := unlinkedFile(content)
	if err != nil {
		return fmt.Errorf("failed to write the kubeconfig for --username: %w", err)
	}
	*flags.KubeConfig = fmt.Sprintf("/dev/fd/%d", file.Fd())
	cmd.SetContext(context.WithValue(cmd.Context(), kept{}, file)) // it lives as long as the command
	return nil
}

type kept struct{}

// unlinkedFile returns a temporary file with this content, which has no name any more and ends with the process.
func unlinkedFile(content []byte) (*os.File, error) {
	f, err := os.CreateTemp("", "kubectl-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, err
	}
	if _, err := f.Write(content); err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, 0); err != nil {
		return nil, err
	}
	return f, nil
}
