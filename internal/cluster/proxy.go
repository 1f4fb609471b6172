package cluster

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"skiff/internal/client"
	"skiff/internal/network/proxy"
)

// RunProxy runs the service proxy of this machine against a server elsewhere, until ctx ends. The options have everything but the client.
func RunProxy(ctx context.Context, kubeconfig string, o proxy.Options) error {
	if kubeconfig == "" {
		return errors.New("--kubeconfig says how to reach the API; it is needed")
	}
	c, err := client.ForKubeconfig(kubeconfig, "kube-proxy")
	if err != nil {
		return err
	}
	o.Client, o.Standalone = c, true
	p, err := proxy.New(o)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	running.Go(func() { tendProxyMemory(ctx) })
	return p.Run(ctx)
}

// tendProxyMemory keeps the process small. It has much to do only once, when it starts: what that took is given back soon after.
func tendProxyMemory(ctx context.Context) {
	debug.SetGCPercent(frugalGrowth)
	for wait := 3 * time.Second; ; wait = 10 * time.Minute {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			debug.FreeOSMemory()
			unmapProgram()
		}
	}
}
