package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"skiff/internal/bundle"
)

// unpackCommand is run by skiff itself, as a short-lived process: see bundle.Unpack.
func unpackCommand() *cobra.Command {
	return &cobra.Command{
		Use:    bundle.UnpackCommand + " DIR",
		Short:  "Unpack containerd and what else a node needs into a directory, and print where they are",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := bundle.Extract(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), path)
			return nil
		},
	}
}

func noticesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "notices",
		Short: "Print the licences of what skiff is built with and of what it brings along",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return bundle.Notices(cmd.OutOrStdout()) },
	}
}
