package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	kubeconfig    = flag.String("kubeconfig", "", "kubeconfig of the server to drive")
	only          = flag.String("only", "memory,create,get,list,update,watch,webhook,policy", "measurements to run")
	objects       = flag.Int("objects", 3000, "custom objects to create, get, list and update")
	memoryObjects = flag.Int("memory-objects", 20000, "custom objects to create for what one takes of the memory")
	concurrency   = flag.Int("concurrency", 32, "parallel requests")
	lists         = flag.Int("lists", 48, "lists of each form, 4 in parallel")
	watchers      = flag.Int("watchers", 500, "parallel watches")
	updates       = flag.Int("updates", 200, "changes every watcher must see")
	bindings      = flag.Int("bindings", 1000, "bindings of the policy")
	pairs         = flag.Int("pairs", 500, "creates with and without the webhook or the policy")
	schemaSize    = flag.Int("schema", 8192, "size of a definition's schema in bytes")
	count         = flag.Int("count", 1000, "definitions to create")
	kubectl       = flag.String("kubectl", "kubectl", "the kubectl that creates the definitions")
	restTime      = flag.Duration("rest", 60*time.Second, "how long the server rests before its memory is looked at")
	timeout       = flag.Duration("timeout", 10*time.Minute, "limit for everything")
	server        processes
)

// stages are the measurements in the order in which they run.
var stages = []struct {
	name string
	run  func(context.Context, *client) error
}{
	{"memory", measureMemory}, {"create", measureCreate}, {"get", measureGet}, {"list", measureLists}, {"update", measureUpdate}, {"watch", measureWatch},
	{"webhook", measureWebhook}, {"policy", measurePolicy}, {"definitions", measureDefinitions}, {"served", waitServed},
}

func main() {
	flag.Var(&server, "pid", "a process of the server; may be given several times")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "custom:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	c, err := newClient(*kubeconfig)
	if err != nil {
		return err
	}
	wanted := strings.Split(*only, ",")
	for _, stage := range stages {
		if !slices.Contains(wanted, stage.name) {
			continue
		}
		if err := stage.run(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", stage.name, err)
		}
	}
	return nil
}

func report(name string, value float64, unit string) {
	fmt.Printf("%-28s %12.2f %s\n", name, value, unit)
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// median sorts the times.
func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// processes are the processes of the server.
type processes []int

func (p *processes) String() string { return fmt.Sprint([]int(*p)) }

func (p *processes) Set(s string) error {
	pid, err := strconv.Atoi(s)
	*p = append(*p, pid)
	return err
}
