package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"skiff/internal/cli/why"
	"skiff/internal/journey"
)

func whyCommand() *cobra.Command {
	var reach reachFlags
	cmd := &cobra.Command{
		Use:   "why KIND/NAME",
		Short: "Say why an object is as it is: what refused it, what failed, what it is waiting for",
		Long: `Say why an object is as it is: the reason in a sentence, and below it what shows that.

Of a pod it says why it is pending, why it is on its node and what it is waiting for. Of every kind it says which admission webhook or policy refused a
write of the object, or of what controllers make for it; which webhook could not be reached, and what its failure policy did; and which changed it. An object
that was never made because a webhook refused it can be asked about too. Of a CustomResourceDefinition it says why its objects cannot be converted, of an
APIService why it is unavailable, of a namespace which aggregated API keeps it from being removed.

The server remembers the last refusals in memory. Those it has forgotten are found in Events for as long as these are kept.`,
		Example: `  skiff why pod/web                           why it is pending, or not ready
  skiff why deployment/web                    why it has no pods
  skiff why configmap/settings                why it could not be written
  skiff why crd/widgets.example.com           why its objects cannot be read
  skiff why namespace/old                     why it does not go away`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name, err := kindAndName(args)
			if err != nil {
				return err
			}
			c, err := reach.client()
			if err != nil {
				return err
			}
			lines, err := why.Explain(cmd.Context(), c, kind, reach.namespace, name, time.Now())
			if err != nil {
				return err
			}
			for _, line := range lines {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), journey.Printable(line)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	reach.add(cmd.Flags())
	return cmd
}
