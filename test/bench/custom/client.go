package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	jsonType       = "application/json"
	mergePatchType = "application/merge-patch+json"
	tableType      = "application/json;as=Table;v=v1;g=meta.k8s.io"
	groupListType  = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// client sends requests over client-go's connections, with bodies as they are.
type client struct {
	http *http.Client
	host string
}

func newClient(kubeconfig string) (*client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.DisableCompression = true // a request that wants it asks for it
	c, err := rest.HTTPClientFor(config)
	return &client{http: c, host: config.Host}, err
}

// open sends a request and returns the body of the response, which the caller closes. Any status but success is an error.
func (c *client) open(ctx context.Context, method, path string, body []byte, headers ...string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", jsonType)
	if body != nil {
		request.Header.Set("Content-Type", jsonType)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < 300 {
		return response.Body, nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 2000))
	return nil, &refusal{request: method + " " + path, status: response.StatusCode, text: string(text)}
}

// refusal is a response of the server that is not success.
type refusal struct {
	request string
	status  int
	text    string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s: status %d: %s", r.request, r.status, r.text)
}

func (c *client) do(ctx context.Context, method, path string, body []byte, headers ...string) ([]byte, error) {
	response, err := c.open(ctx, method, path, body, headers...)
	if err != nil {
		return nil, err
	}
	defer response.Close()
	return io.ReadAll(response)
}

// drain reads a response without keeping it.
func (c *client) drain(ctx context.Context, method, path string, body []byte, headers ...string) error {
	response, err := c.open(ctx, method, path, body, headers...)
	if err != nil {
		return err
	}
	defer response.Close()
	_, err = io.Copy(io.Discard, response)
	return err
}

// measure runs n calls of f over some workers, and reports their rate, the median of their times and the server's processor time for each.
func measure(name string, n, workers int, f func(i int) error) error {
	before, err := server.cpu()
	if err != nil {
		return err
	}
	start := time.Now()
	took, err := inParallel(n, workers, f)
	if err != nil {
		return err
	}
	report(name, float64(n)/time.Since(start).Seconds(), "ops/s")
	report(name+"-p50", milliseconds(median(took)), "ms")
	return reportCPU(name, before, n)
}

// reportCPU prints the server's processor time for each of n operations, when it had used so much before them.
func reportCPU(name string, before time.Duration, n int) error {
	after, err := server.cpu()
	if err == nil && len(server) > 0 {
		report(name+"-server-cpu", float64((after-before).Nanoseconds())/1e3/float64(n), "us/op")
	}
	return err
}

// inParallel runs n calls of f over some workers, until one fails, and returns how long each took.
func inParallel(n, workers int, f func(i int) error) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	var next atomic.Int64
	var failure atomic.Pointer[error]
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failure.Load() == nil; i = int(next.Add(1)) - 1 {
				start := time.Now()
				if err := f(i); err != nil {
					failure.Store(&err)
				}
				took[i] = time.Since(start)
			}
		})
	}
	working.Wait()
	if err := failure.Load(); err != nil {
		return nil, *err
	}
	return slices.Clip(took), nil
}
