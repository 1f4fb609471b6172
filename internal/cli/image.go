package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"skiff/internal/cluster"
	"skiff/internal/cluster/datadir"
	"skiff/internal/images"
)

// imageCommand has the commands for the images of a cluster. They work whether it runs or not: images are files, which its registry serves.
func imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Load, build, list and remove images in the cluster's own registry, which pods' images are first looked for in",
	}
	var config cluster.Config
	addClusterFlags(cmd.PersistentFlags(), &config)
	store := func() (*images.Store, error) {
		if err := datadir.Prepare(config.DataDir); err != nil {
			return nil, err
		}
		return images.Open(filepath.Join(config.DataDir, "images"))
	}
	cmd.AddCommand(imageLoadCommand(store), imageBuildCommand(store), imageSaveCommand(store), imageListCommand(store), imageRemoveCommand(store))
	return cmd
}

func imageLoadCommand(open func() (*images.Store, error)) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "load FILE...",
		Short: "Bring the images of an archive: an OCI layout or what docker save writes; - is the standard input",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := open()
			if err != nil {
				return err
			}
			for _, file := range args {
				names, err := loadFile(cmd, store, file, name)
				if err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				for _, n := range names {
					fmt.Fprintln(cmd.OutOrStdout(), "loaded", n)
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&name, "tag", "t", "", "what to call the image, if not as the archive says")
	return cmd
}

func loadFile(cmd *cobra.Command, store *images.Store, file, name string) ([]images.Name, error) {
	var from io.Reader = cmd.InOrStdin()
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from = f
	}
	return store.Load(cmd.Context(), from, name)
}

func imageBuildCommand(open func() (*images.Store, error)) *cobra.Command {
	var name, recipe, out string
	cmd := &cobra.Command{
		Use:   "build DIR",
		Short: "Build an image of files: of a Dockerfile's instructions, those that run no programs",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if name == "" {
				return errors.New("say what to call the image: --tag NAME")
			}
			n, err := images.ParseName(name)
			if err != nil {
				return err
			}
			if out != "" { // the cluster's own images are left alone
				dir, err := os.MkdirTemp("", "skiff-image-")
				if err != nil {
					return err
				}
				defer os.RemoveAll(dir)
				open = func() (*images.Store, error) { return images.Open(dir) }
			}
			store, err := open()
			if err != nil {
				return err
			}
			if _, err := store.Build(cmd.Context(), args[0], recipe, n); err != nil {
				return err
			}
			if out != "" {
				if err := saveFile(cmd.Context(), store, out, n); err != nil {
					return err
				}
			}
			fmt.Fprintln(cmd.OutOrStdout(), "built", n)
			return nil
		},
	}
	cmd.Flags().StringVarP(&name, "tag", "t", "", "what to call the image")
	cmd.Flags().StringVarP(&recipe, "file", "f", "", "the Dockerfile; DIR/Dockerfile if empty")
	cmd.Flags().StringVarP(&out, "output", "o", "", "write an archive to this file instead of loading the image")
	return cmd
}

func imageSaveCommand(open func() (*images.Store, error)) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "save NAME...",
		Short: "Write images to an archive that load, docker, podman and containerd read",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return errors.New("say which file to write: --output FILE")
			}
			store, err := open()
			if err != nil {
				return err
			}
			var names []images.Name
			for _, arg := range args {
				n, err := images.ParseName(arg)
				if err != nil {
					return err
				}
				names = append(names, n)
			}
			return saveFile(cmd.Context(), store, out, names...)
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "the file to write")
	return cmd
}

// saveFile writes an archive to a file, which is put in place by a rename when it is complete.
func saveFile(ctx context.Context, store *images.Store, path string, names ...images.Name) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // renamed by then, unless something failed
	err = store.Save(ctx, f, names...)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return missingImage(err)
	}
	return os.Rename(f.Name(), path)
}

func imageListCommand(open func() (*images.Store, error)) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the images",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := open()
			if err != nil {
				return err
			}
			list, err := store.List()
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "IMAGE\tDIGEST\tSIZE\tAGE")
			for _, i := range list {
				fmt.Fprintf(w, "%s\t%.19s\t%s\t%s\n", i.Name.Short(), i.Content.Digest, fmt.Sprintf("%.1f MB", float64(i.Size)/1e6), duration.HumanDuration(time.Since(i.Since)))
			}
			return w.Flush()
		},
	}
}

func imageRemoveCommand(open func() (*images.Store, error)) *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME...",
		Aliases: []string{"remove"},
		Short:   "Remove images, and the layers that no other image uses",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := open()
			if err != nil {
				return err
			}
			for _, arg := range args {
				n, err := images.ParseName(arg)
				if err == nil {
					err = missingImage(store.Remove(cmd.Context(), n))
				}
				if err != nil {
					return fmt.Errorf("%s: %w", arg, err)
				}
				fmt.Fprintln(cmd.OutOrStdout(), "removed", n)
			}
			return nil
		},
	}
}

// missingImage returns an error for people if an image does not exist, and other errors as they are.
func missingImage(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("there is no such image; skiff image ls lists them")
	}
	return err
}
