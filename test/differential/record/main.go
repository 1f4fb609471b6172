package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"skiff/test/differential"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig of the upstream server")
	kubectl := flag.String("kubectl", "bin/kubectl", "the kubectl to record with")
	parallel := flag.Int("parallel", 2, "scripts to record at a time")
	flag.Parse()
	if err := record(*kubeconfig, *kubectl, *parallel, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func record(kubeconfig, kubectl string, parallel int, paths []string) error {
	if len(paths) == 0 {
		var err error
		if paths, err = filepath.Glob("test/differential/testdata/*.script"); err != nil {
			return err
		}
	}
	cache, err := os.MkdirTemp("", "skiff-record-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(cache)
	server := differential.Server{Kubeconfig: kubeconfig, Kubectl: kubectl, CacheDir: cache}
	group, ctx := errgroup.WithContext(context.Background())
	group.SetLimit(parallel)
	for _, path := range paths {
		group.Go(func() error { return recordOne(ctx, server, path) })
	}
	return group.Wait()
}

func recordOne(ctx context.Context, server differential.Server, path string) error {
	script, err := differential.Load(path)
	if err != nil {
		return err
	}
	played, err := server.Run(ctx, script)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(played.Format()), 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %d commands\n", path, len(played.Steps))
	return nil
}
