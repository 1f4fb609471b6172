package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/internal/client"
	"skiff/internal/hollow"
)

var (
	kubeconfig = flag.String("kubeconfig", "", "kubeconfig of the server to drive")
	nodes      = flag.Int("nodes", 20, "how many hollow nodes there are")
	replicas   = flag.Int("replicas", 100, "how many pods the StatefulSet has")
	claims     = flag.Int("claims", 1000, "how many PersistentVolumeClaims are bound")
	rounds     = flag.Int("rounds", 5, "how often each is measured")
)

const limit = 30 * time.Minute

func main() {
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "loops:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	ctx, stop := context.WithCancel(ctx)
	ended, err := runNodes(ctx, config)
	if err != nil {
		stop()
		return err
	}
	defer func() {
		stop()
		<-ended
	}()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := median(fmt.Sprintf("statefulset-%d-ready", *replicas), func() (time.Duration, error) { return statefulSet(ctx, c) }); err != nil {
		return err
	}
	if err := median(fmt.Sprintf("claims-%d-bound", *claims), func() (time.Duration, error) { return boundClaims(ctx, c) }); err != nil {
		return err
	}
	return median(fmt.Sprintf("claims-%d-provisioned", *claims), func() (time.Duration, error) { return provisionedClaims(ctx, c) })
}

// median prints the median of a measurement, in seconds.
func median(name string, measure func() (time.Duration, error)) error {
	var all []time.Duration
	for range *rounds {
		took, err := measure()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, took)
	}
	slices.Sort(all)
	fmt.Printf("%s %.3f s\n", name, all[len(all)/2].Seconds())
	return nil
}

// runNodes starts hollow nodes and returns when they have registered. The channel is closed when they have ended.
func runNodes(ctx context.Context, config *rest.Config) (<-chan struct{}, error) {
	watch, err := client.ForConfig(config, "hollow-nodes")
	if err != nil {
		return nil, err
	}
	all, err := hollow.New(hollow.Options{Count: *nodes, Watch: watch, Client: func(node string) (*client.Client, error) {
		as := rest.CopyConfig(config)
		as.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + node, Groups: []string{"system:nodes"}}
		return client.ForConfig(as, "kubelet")
	}})
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := all.Run(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "loops: hollow nodes:", err)
		}
	}()
	return ended, all.WaitReady(ctx)
}
