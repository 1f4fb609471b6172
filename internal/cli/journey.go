package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/internal/client"
	"skiff/internal/cluster"
	"skiff/internal/journey"
)

func journeyCommand() *cobra.Command {
	var reach reachFlags
	var draw journey.DrawOptions
	var watch bool
	var output string
	cmd := &cobra.Command{
		Use:   "journey KIND/NAME",
		Short: "Draw how an object came to be and all that came of it, with times",
		Example: `  skiff journey deployment/nginx        the tree, from the request to the last pod that is ready
  skiff journey pod/nginx-5d4f9-x7x2p   only what led to one pod
  skiff journey deployment/nginx -w     as it happens`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name, err := kindAndName(args)
			if err != nil {
				return err
			}
			if output != "" && output != "json" {
				return fmt.Errorf("-o %s: the only other format is json", output)
			}
			c, err := reach.client()
			if err != nil {
				return err
			}
			ask := func(ctx context.Context) (*journey.Tree, []byte, error) {
				return c.Journey(ctx, kind, reach.namespace, name)
			}
			draw.Color = isTerminal(cmd.OutOrStdout())
			show := func(w io.Writer, tree *journey.Tree, body []byte) error {
				if output == "json" {
					var pretty bytes.Buffer
					if err := json.Indent(&pretty, body, "", "  "); err != nil {
						return err
					}
					_, err := fmt.Fprintln(w, pretty.String())
					return err
				}
				return tree.Draw(w, draw)
			}
			if watch {
				ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
				defer stop()
				return watchJourney(ctx, cmd.OutOrStdout(), draw.Color && output == "", ask, show)
			}
			tree, body, err := ask(cmd.Context())
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), tree, body)
		},
	}
	reach.add(cmd.Flags())
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on, and draw it anew when something happens")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for all that is known, with the times of everything")
	cmd.Flags().BoolVar(&draw.Stages, "stages", false, "the stages of every request, not only of the first")
	cmd.Flags().BoolVar(&draw.Later, "all", false, "what happened long after it was ready too")
	return cmd
}

// reachFlags are the flags that say which cluster and which namespace a command reads.
type reachFlags struct{ kubeconfig, dataDir, namespace string }

func (r *reachFlags) add(f *pflag.FlagSet) {
	f.StringVar(&r.kubeconfig, "kubeconfig", "", "how to reach the API; that of the cluster in the data directory if there is one, else as kubectl finds it")
	f.StringVar(&r.dataDir, "data-dir", cluster.DefaultDataDir, "where the cluster's data is kept")
	f.StringVarP(&r.namespace, "namespace", "n", "default", "namespace of the object")
}

func (r *reachFlags) client() (*client.Client, error) {
	if r.kubeconfig == "" {
		if own := cluster.KubeconfigPath(r.dataDir); readable(own) {
			r.kubeconfig = own
		}
	}
	if r.kubeconfig != "" {
		return client.ForKubeconfig(r.kubeconfig, "skiff")
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("failed to read the kubeconfig: %w", err)
	}
	return client.ForConfig(config, "skiff")
}

func readable(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "" && os.Getenv("TERM") != "dumb"
}

// kindAndName parses KIND/NAME, or KIND NAME.
func kindAndName(args []string) (kind, name string, err error) {
	if len(args) == 2 {
		kind, name = args[0], args[1]
	} else {
		kind, name, _ = strings.Cut(args[0], "/")
	}
	if kind == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%s: want KIND/NAME, such as deployment/nginx", strings.Join(args, " "))
	}
	return kind, name, nil
}

// watchInterval is how often a journey that is watched is read.
const watchInterval = 400 * time.Millisecond

// watchJourney prints a journey whenever it has changed, until ctx ends. It waits for an object that does not exist yet.
func watchJourney(ctx context.Context, w io.Writer, clear bool, ask func(context.Context) (*journey.Tree, []byte, error), show func(io.Writer, *journey.Tree, []byte) error) error {
	var last []byte
	waiting := false
	for ctx.Err() == nil {
		switch tree, body, err := ask(ctx); {
		case ctx.Err() != nil:
			return nil
		case apierrors.IsNotFound(err):
			if !waiting {
				waiting = true
				fmt.Fprintln(w, "waiting:", err)
			}
		case err != nil:
			return err
		case !bytes.Equal(body, last):
			var page bytes.Buffer
			if clear {
				page.WriteString("\x1b[H\x1b[2J")
			} else if last != nil {
				page.WriteString("\n")
			}
			if err := show(&page, tree, body); err != nil {
				return err
			}
			if _, err := w.Write(page.Bytes()); err != nil {
				return err
			}
			last = body
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchInterval):
		}
	}
	return nil
}
