package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

var (
	kubeconfig = flag.String("kubeconfig", "", "kubeconfig of the server to drive")
	nodes      = flag.Int("nodes", 1000, "how many watch, each the pods of its node")
	pods       = flag.Int("pods", 2000, "how many pods are created, spread over the nodes")
	rate       = flag.Int("rate", 200, "how many of them a second")
)

const (
	namespace = "kubelets"
	sent      = "sent"
	limit     = 5 * time.Minute
)

func main() {
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kubelets:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.ContentType, config.AcceptContentTypes = -1, "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf"
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := prepare(ctx, c); err != nil {
		return err
	}
	watches, err := open(ctx, c)
	if err != nil {
		return err
	}
	var late lags
	var reading sync.WaitGroup
	for _, w := range watches {
		reading.Go(func() { late.read(w) })
	}
	if err := create(ctx, c); err != nil {
		return err
	}
	for deadline := time.Now().Add(30 * time.Second); late.count() < *pods && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	for _, w := range watches {
		w.Stop()
	}
	reading.Wait()
	zero := int64(0)
	if err := c.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{}); err != nil {
		return err
	}
	return late.report()
}

// prepare creates the namespace and its service account, unless a controller has done so.
func prepare(ctx context.Context, c kubernetes.Interface) error {
	_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = c.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i%*nodes) }

// open starts all watches, a few at a time.
func open(ctx context.Context, c kubernetes.Interface) ([]watch.Interface, error) {
	watches := make([]watch.Interface, *nodes)
	failures := make([]error, *nodes)
	turns := make(chan struct{}, 32)
	var opening sync.WaitGroup
	for i := range watches {
		opening.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			ofNode := fields.OneTermEqualSelector("spec.nodeName", nodeName(i)).String()
			watches[i], failures[i] = c.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{FieldSelector: ofNode})
		})
	}
	opening.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	return watches, nil
}

// create creates the pods at a steady rate, however long each takes.
func create(ctx context.Context, c kubernetes.Interface) error {
	failures := make(chan error, *pods)
	var creating sync.WaitGroup
	turn := time.NewTicker(time.Second / time.Duration(*rate))
	defer turn.Stop()
	for i := range *pods {
		<-turn.C
		creating.Go(func() {
			no := false
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i), Annotations: map[string]string{sent: time.Now().Format(time.RFC3339Nano)}},
				Spec:       corev1.PodSpec{NodeName: nodeName(i), AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1.0"}}},
			}
			if _, err := c.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				failures <- err
			}
		})
	}
	creating.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

// lags collects the delays between creating and observing pods.
type lags struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *lags) read(w watch.Interface) {
	for event := range w.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok || event.Type != watch.Added {
			continue
		}
		if at, err := time.Parse(time.RFC3339Nano, pod.Annotations[sent]); err == nil {
			l.mu.Lock()
			l.all = append(l.all, time.Since(at))
			l.mu.Unlock()
		}
	}
}

func (l *lags) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

func (l *lags) report() error {
	if len(l.all) < *pods {
		return fmt.Errorf("only %d of %d pods were heard of", len(l.all), *pods)
	}
	slices.Sort(l.all)
	for _, percent := range []int{50, 99} {
		fmt.Printf("own-pod-lag-p%d %.2f ms\n", percent, l.all[len(l.all)*percent/100].Seconds()*1000)
	}
	return nil
}
