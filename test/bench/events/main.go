package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var (
	kubeconfig = flag.String("kubeconfig", "", "kubeconfig of the server to drive")
	events     = flag.Int("events", 60000, "how many Events to create")
	from       = flag.Int("from", 0, "number of the first Event, so that a second run adds to the first")
	workers    = flag.Int("workers", 16, "how many create Events at the same time")
	list       = flag.Bool("list", false, "list all Events afterwards, in each encoding")
)

const (
	namespace = "events"
	limit     = 30 * time.Minute
	protobuf  = "application/vnd.kubernetes.protobuf"
	table     = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

func main() {
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "events:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.ContentType, config.AcceptContentTypes, config.UserAgent = -1, protobuf, protobuf, "kubelet/bench"
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if *events > 0 {
		if err := create(ctx, c); err != nil {
			return err
		}
	}
	if !*list {
		return nil
	}
	for _, accept := range []string{protobuf, "application/json", table} {
		if err := listAs(ctx, c.CoreV1().RESTClient(), accept); err != nil {
			return err
		}
	}
	return nil
}

func create(ctx context.Context, c kubernetes.Interface) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	next := int64(*from)
	var working sync.WaitGroup
	for range *workers {
		working.Go(func() {
			for {
				i := int(atomic.AddInt64(&next, 1)) - 1
				if i >= *from+*events || ctx.Err() != nil {
					return
				}
				if _, err := c.CoreV1().Events(namespace).Create(ctx, event(i), metav1.CreateOptions{}); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	working.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	fmt.Printf("event-creates %.0f events/s\n", float64(*events)/time.Since(began).Seconds())
	return nil
}

// event returns the i-th Event, like those that a pod causes when it starts.
func event(i int) *corev1.Event {
	pod := fmt.Sprintf("web-%08x-%05x", i/60*2654435761%(1<<32), i/6)
	kinds := []struct{ reason, component, message string }{
		{"Scheduled", "default-scheduler", "Successfully assigned events/" + pod + " to node-17.cluster.example"},
		{"Pulling", "kubelet", `Pulling image "registry.example/shop/web:1.27.3"`},
		{"Pulled", "kubelet", `Successfully pulled image "registry.example/shop/web:1.27.3" in 1.204s (1.204s including waiting). Image size: 71004338 bytes.`},
		{"Created", "kubelet", "Created container: web"},
		{"Started", "kubelet", "Started container web"},
		{"Killing", "kubelet", "Stopping container web"},
	}
	kind := kinds[i%len(kinds)]
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%016x", pod, 0x18320a0000000000+int64(i)*7919)},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: namespace, Name: pod,
			UID: types.UID(fmt.Sprintf("6f1c9c52-8c5e-4d1c-9d59-%012x", i/6)), ResourceVersion: fmt.Sprint(1000 + i), FieldPath: "spec.containers{web}"},
		Reason: kind.reason, Message: kind.message, Type: corev1.EventTypeNormal,
		Source:         corev1.EventSource{Component: kind.component, Host: "node-17.cluster.example"},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: kind.component, ReportingInstance: "node-17.cluster.example",
	}
}

// listAs lists in an encoding, and reads the answer without decoding it.
func listAs(ctx context.Context, c rest.Interface, accept string) error {
	began := time.Now()
	body, err := c.Get().Namespace(namespace).Resource("events").SetHeader("Accept", accept).Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	n, err := io.Copy(io.Discard, body)
	if err != nil {
		return err
	}
	name := map[string]string{protobuf: "protobuf", table: "table"}[accept]
	if name == "" {
		name = "json"
	}
	fmt.Printf("event-list-%s %.0f ms (%d bytes)\n", name, time.Since(began).Seconds()*1000, n)
	return nil
}
