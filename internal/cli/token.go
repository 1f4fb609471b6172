package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"skiff/internal/cluster"
)

func tokenCommand() *cobra.Command {
	var config cluster.Config
	var kubeconfig string
	cmd := &cobra.Command{Use: "token", Short: "Make, list and delete what machines join the cluster with"}
	addClusterFlags(cmd.PersistentFlags(), &config)
	cmd.PersistentFlags().StringVar(&kubeconfig, "kubeconfig", "", "how to reach the cluster; the administrator's in --data-dir if empty")
	open := func() (*cluster.Tokens, error) { return cluster.OpenTokens(config.DataDir, kubeconfig) }
	cmd.AddCommand(tokenCreateCommand(open), tokenListCommand(open), tokenDeleteCommand(open))
	return cmd
}

func tokenCreateCommand(open func() (*cluster.Tokens, error)) *cobra.Command {
	var life time.Duration
	var uses int
	var description string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a token for machines to join with, and print it",
		Long: `Make a token for machines to join with, and print it.

The token says which cluster it is of, so that a machine that joins cannot be led to another one. It is good for one machine, until its time is over or it is
deleted. With --uses it is good for more machines, each of which has a name and a key of its own.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tokens, err := open()
			if err != nil {
				return err
			}
			token, server, err := tokens.Create(cmd.Context(), life, uses, description)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), token)
			if server != "" { // not where a script reads the token
				fmt.Fprintf(cmd.ErrOrStderr(), "\nOn the machine that is to join:\n  skiff agent --server %s --token %s\n", server, token)
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&life, "ttl", 24*time.Hour, "how long the token is good; for ever if 0")
	cmd.Flags().IntVar(&uses, "uses", 1, "how many machines may join with it; any number if 0")
	cmd.Flags().Bool("single-use", true, "")
	_ = cmd.Flags().MarkDeprecated("single-use", "tokens are for one machine unless --uses says otherwise") // it fails for unknown flags only
	cmd.Flags().StringVar(&description, "description", "", "what it is for, in your words")
	return cmd
}

func tokenListCommand(open func() (*cluster.Tokens, error)) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the tokens there are", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tokens, err := open()
			if err != nil {
				return err
			}
			all, err := tokens.List(cmd.Context())
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tTTL\tEXPIRES\tUSAGES\tMACHINES\tDESCRIPTION")
			for _, t := range all {
				left, expires, machines := "forever", "never", "any number"
				if !t.Expires.IsZero() {
					left, expires = duration.HumanDuration(max(time.Until(t.Expires), 0)), t.Expires.Format(time.RFC3339)
				}
				if t.Uses > 0 {
					machines = fmt.Sprintf("%d of %d", t.Used, t.Uses)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, left, expires, strings.Join(t.Usages, ","), machines, t.Description)
			}
			return w.Flush()
		},
	}
}

func tokenDeleteCommand(open func() (*cluster.Tokens, error)) *cobra.Command {
	return &cobra.Command{
		Use: "delete TOKEN...", Aliases: []string{"rm"}, Short: "Delete tokens, given whole or by their ids: nobody joins with them any more", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			tokens, err := open()
			if err != nil {
				return err
			}
			for _, name := range names {
				id, err := tokens.Delete(cmd.Context(), name)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "token %s is deleted\n", id)
			}
			return nil
		},
	}
}
